// Metrics as Prometheus text (OBS-3), and the JSON writer.
#include <gtest/gtest.h>

#include <cmath>

#include "core/json_writer.hpp"
#include "core/metrics.hpp"
#include "tests/support/golden.hpp"

namespace strata {
namespace {

TEST(MetricsTest, PrometheusText) {
  Metrics metrics;
  metrics.describe("strata_tier_bytes", "bytes that a tier holds\nwith every copy counted once");
  metrics.set("strata_tier_bytes", R"(tier="ram")", 1.5e9);
  metrics.set("strata_tier_bytes", R"(tier="disk")", 12);
  metrics.add("strata_reads_total", R"(reason="new")");
  metrics.add("strata_reads_total", R"(reason="new")", 2);
  metrics.add("strata_reads_total", R"(reason="evicted")", 0);
  metrics.add("llamacpp:prompt_tokens_total", {}, 812);
  metrics.set("strata_ratio", {}, 0.25);
  metrics.set("strata_odd", R"(value="nan")", std::nan(""));
  metrics.set("strata_odd", R"(value="inf")", INFINITY);
  metrics.observe_seconds("strata_restore_seconds", R"(tier="disk")", 0.0005);
  metrics.observe_seconds("strata_restore_seconds", R"(tier="disk")", 0.25);
  metrics.observe_seconds("strata_restore_seconds", R"(tier="disk")", 3.3);
  metrics.observe_seconds("strata_restore_seconds", R"(tier="disk")", 100);
  metrics.observe_seconds("strata_park_seconds", {}, 0.002);
  testing::expect_golden("metrics.txt", metrics.prometheus());
}

TEST(MetricsTest, ValuesCanBeReadBack) {
  Metrics metrics;
  EXPECT_EQ(metrics.value("strata_reads_total"), 0);
  metrics.add("strata_reads_total");
  metrics.add("strata_reads_total", {}, 4);
  metrics.set("strata_tier_bytes", R"(tier="ram")", 7);
  metrics.observe_seconds("strata_park_seconds", {}, 0.002);
  EXPECT_EQ(metrics.value("strata_reads_total"), 5);
  EXPECT_EQ(metrics.value("strata_tier_bytes", R"(tier="ram")"), 7);
  EXPECT_EQ(metrics.value("strata_tier_bytes", R"(tier="disk")"), 0);
  EXPECT_EQ(metrics.value("strata_park_seconds"), 1);
}

TEST(MetricsDeathTest, ANameHasOneKind) {
  Metrics metrics;
  metrics.add("strata_reads_total");
  EXPECT_DEATH(metrics.set("strata_reads_total", {}, 1), "internal error");
}

TEST(Json, ValuesAndCommas) {
  JsonWriter json;
  json.begin_object()
      .member("text", "a \"quoted\" \\ line\n")
      .member("count", uint64_t{18446744073709551615u})
      .member("signed", -3)
      .member("real", 0.5)
      .member("whole", 3.0)
      .member("yes", true)
      .key("none")
      .null()
      .key("list")
      .begin_array()
      .value(1)
      .value(2)
      .begin_object()
      .end_object()
      .begin_array()
      .end_array()
      .end_array()
      .key("made")
      .raw(R"({"a":1})")
      .end_object();
  EXPECT_EQ(
      json.text(),
      R"({"text":"a \"quoted\" \\ line\n","count":18446744073709551615,"signed":-3,"real":0.5,"whole":3,)"
      R"("yes":true,"none":null,"list":[1,2,{},[]],"made":{"a":1}})");
}

std::string quoted(std::string_view text) {
  JsonWriter json;
  json.value(text);
  return json.take();
}

TEST(Json, ControlCharactersAreEscaped) {
  EXPECT_EQ(quoted(std::string_view("\0\x01\x1f\t\r", 5)), R"("\u0000\u0001\u001f\t\r")");
}

TEST(Json, TextIsAlwaysUtf8) {
  EXPECT_EQ(quoted("grün €\xF0\x9F\x99\x82"), "\"grün €\xF0\x9F\x99\x82\"");
  EXPECT_EQ(quoted("\xFF"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(quoted("a\xC3"), "\"a\xEF\xBF\xBD\"");                // cut
  EXPECT_EQ(quoted("\xC0\xAF"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");  // overlong
  EXPECT_EQ(quoted("\xE0\x80\xAF"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(quoted("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // surrogate
  EXPECT_EQ(quoted("\xF4\x90\x80\x80").size(), 2u + 4 * 3);                       // above U+10FFFF
}

TEST(Json, NumbersThatAreNotFiniteBecomeNull) {
  JsonWriter json;
  json.begin_array().value(std::nan("")).value(INFINITY).end_array();
  EXPECT_EQ(json.text(), "[null,null]");
}

}  // namespace
}  // namespace strata
