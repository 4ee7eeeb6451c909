// The helpers for plugin authors: PLG-1, and design rule "no exception leaves a plugin".
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "plugins/host/abi_error.hpp"
#include "plugins/host/host_context.hpp"
#include "plugins/sdk/error.hpp"
#include "plugins/sdk/guard.hpp"
#include "plugins/sdk/options.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/recording_log.hpp"

namespace strata {
namespace {

TEST(Sdk, ExceptionsBecomeErrorsWithTheirText_PLG1) {
  strata_error error{};
  EXPECT_EQ(sdk::guard(&error, []() -> strata_status { throw std::runtime_error("the reason"); }),
            STRATA_INTERNAL);
  EXPECT_STREQ(error.message, "the reason");
  EXPECT_EQ(error.code, STRATA_INTERNAL);
  EXPECT_EQ(sdk::guard(&error, []() -> strata_status { throw std::bad_alloc(); }), STRATA_EXHAUSTED);
  EXPECT_EQ(sdk::guard(&error, []() -> strata_status { throw 7; }), STRATA_INTERNAL);
  EXPECT_EQ(sdk::guard(nullptr, []() -> strata_status { throw 7; }), STRATA_INTERNAL);
  EXPECT_EQ(sdk::guard(&error, [] { return strata_status{STRATA_OK}; }), STRATA_OK);
}

// A thrown Failure arrives with all that it carries, from either way to fail; a body without a result
// succeeds by returning.
TEST(Sdk, FailuresKeepWhatTheyCarry_PLG1) {
  strata_error error = {};
  EXPECT_EQ(sdk::guard(&error, [] { sdk::raise(STRATA_CORRUPT, "part %d", 7); }), STRATA_CORRUPT);
  EXPECT_STREQ(error.message, "part 7");
  const auto of_a_device = [](strata_error* inner) {
    sdk::fail(inner, STRATA_UNAVAILABLE, "gone", ENODEV);
    inner->vendor_code = 719;
    inner->flags = STRATA_ERROR_DEVICE_LOST;
    return strata_status{STRATA_UNAVAILABLE};
  };
  EXPECT_EQ(sdk::guard(&error, [&] { sdk::checked(of_a_device); }), STRATA_UNAVAILABLE);
  EXPECT_STREQ(error.message, "gone");
  EXPECT_EQ(error.os_errno, ENODEV);
  EXPECT_EQ(error.vendor_code, 719);
  EXPECT_EQ(error.flags, static_cast<uint32_t>(STRATA_ERROR_DEVICE_LOST));
  EXPECT_EQ(sdk::guard(nullptr, [&] { sdk::checked(of_a_device); }), STRATA_UNAVAILABLE);
  EXPECT_EQ(sdk::guard(&error, [] {}), STRATA_OK);
}

TEST(Sdk, LongMessagesAreCutAndTerminated) {
  strata_error error{};
  const std::string longer(1000, 'x');
  sdk::fail(&error, STRATA_IO, longer, 5);
  EXPECT_EQ(std::string(error.message), longer.substr(0, sizeof error.message - 1));
  EXPECT_EQ(error.os_errno, 5);
}

TEST(Sdk, ErrorsArriveInTheHost) {
  strata_error error{};
  sdk::fail_errno(&error, ENOSPC, "writing");
  const Status status = from_abi(error.code, error, "plugin");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::exhausted);
  EXPECT_EQ(status.error().os_errno, ENOSPC);
  EXPECT_EQ(status.error().message, "plugin: writing: No space left on device");
}

TEST(Sdk, AnErrnoMeansTheSameOnBothSides_SES4) {
  for (int os_errno = 1; os_errno < 134; ++os_errno) {
    const Error error = errno_error(os_errno, "");
    if (error.code == ErrorCode::io || os_errno == EISDIR || os_errno == ENOTDIR || os_errno == ELOOP ||
        os_errno == ENAMETOOLONG) {
      continue;  // the host knows more about paths
    }
    EXPECT_EQ(sdk::status_of_errno(os_errno), static_cast<strata_status>(error.code))
        << strerrordesc_np(os_errno);
  }
}

class SdkOptions : public ::testing::Test {
 protected:
  testing::RecordingLog log_;
  testing::FakeClock clock_;
  HostContext host_{
      log_, clock_, {{"number", "42"}, {"word", "abc"}, {"empty", ""}, {"long", std::string(500, 'y')}}};
};

TEST_F(SdkOptions, TextsOfAnyLength) {
  EXPECT_EQ(sdk::option_text(host_.abi(), "word"), "abc");
  EXPECT_EQ(sdk::option_text(host_.abi(), "empty"), "");
  EXPECT_EQ(sdk::option_text(host_.abi(), "long"), std::string(500, 'y'));
  EXPECT_EQ(sdk::option_text(host_.abi(), "absent"), std::nullopt);
  EXPECT_EQ(sdk::option_text(nullptr, "word"), std::nullopt);
}

TEST_F(SdkOptions, NumbersInsideTheirRange) {
  uint64_t value = 0;
  strata_error error{};
  EXPECT_EQ(sdk::option_number(host_.abi(), {"number", 1, 0, 100}, &value, &error), STRATA_OK);
  EXPECT_EQ(value, 42u);
  EXPECT_EQ(sdk::option_number(host_.abi(), {"absent", 7, 0, 100}, &value, &error), STRATA_OK);
  EXPECT_EQ(value, 7u);
  for (const sdk::NumberOption& bad : {sdk::NumberOption{"number", 1, 0, 41},
                                       {"number", 1, 43, 100},
                                       {"word", 1, 0, 100},
                                       {"empty", 1, 0, 100}}) {
    EXPECT_EQ(sdk::option_number(host_.abi(), bad, &value, &error), STRATA_INVALID);
    EXPECT_NE(std::string(error.message).find(bad.key), std::string::npos) << error.message;
  }
}

TEST_F(SdkOptions, AValueThatDoesNotFitIsNotCopiedButMeasured) {
  char out[4] = "???";
  EXPECT_EQ(host_.abi()->get_option(host_.abi()->ctx, "long", out, sizeof out), 500);
  EXPECT_STREQ(out, "???");
  EXPECT_EQ(host_.abi()->get_option(host_.abi()->ctx, "word", out, sizeof out), 3);
  EXPECT_STREQ(out, "abc");
}

TEST_F(SdkOptions, LogLinesAndTimeComeFromTheHost) {
  sdk::log(host_.abi(), STRATA_LOG_WARNING, "a line");
  sdk::log(host_.abi(), 99, "another");
  ASSERT_EQ(log_.lines().size(), 2u);
  EXPECT_EQ(log_.lines()[0].level, LogLevel::warning);
  EXPECT_EQ(log_.lines()[0].text, "a line");
  EXPECT_EQ(log_.lines()[1].level, LogLevel::error);
  EXPECT_EQ(host_.abi()->now_ns(host_.abi()->ctx), clock_.monotonic_ns());
}

}  // namespace
}  // namespace strata
