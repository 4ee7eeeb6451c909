// How the code below the table fails: a Failure with its status. Any thread.
#pragma once

#include "plugins/sdk/failure.hpp"

namespace strata::llama {

using sdk::Failure;
using sdk::raise;

}  // namespace strata::llama
