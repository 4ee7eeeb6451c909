// The model table of the synthetic model.
#include "plugins/model_synthetic/synthetic_model.hpp"
#include "plugins/sdk/model_table.hpp"

namespace {

// Below every model that computes: it is taken only when it is asked for by name.
int32_t probe(const strata_host* /*host*/, strata_error* /*error*/) { return 1; }

}  // namespace

STRATA_PLUGIN_ENTRY(model_synthetic) {
  static const strata_model kTable =
      strata::sdk::ModelTable<strata::synthetic::SyntheticModel>::make("synthetic", "1.0", probe);
  return kind == STRATA_KIND_MODEL ? &kTable.plugin : nullptr;
}
