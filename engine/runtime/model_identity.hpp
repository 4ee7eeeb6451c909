// The identity of what a model's saved bytes mean (ID-1, ID-2): a digest of every byte of the model's files
// by role, and the configuration fields of the engine and the model. Slot count, context, paths, ports and
// the clock are no part of it. Blocks while it reads the files. One thread.
#pragma once

#include "core/file_system.hpp"
#include "core/identity.hpp"
#include "core/model.hpp"
#include "core/result.hpp"

namespace strata {

// A model without files is what its own fields say: their digest stands for the content.
// Errors: what the model or the file system reported.
Result<Identity> identity_of(Model& model, FileSystem& files);

}  // namespace strata
