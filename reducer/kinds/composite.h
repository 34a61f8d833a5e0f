#pragma once

#include <memory>

#include "reducer/reducer.h"

namespace lockstep {

// Several reducers over one communicator, as a model with several DDP modules has: of
// options.kind, one for each of options.wrapped_modules, or one for all, without the tensors in
// options.ignored; and, where those are averaged by hand, one of kind manual. All ranks call their
// collectives in the same order as long as their backwards come to the modules in the same order:
// nothing else sees to it, here as in DDP.
//
// Buckets are numbered through all reducers, the last module's first.
std::unique_ptr<Reducer> make_several(const ReducerOptions& options, const NamedTensors& parameters,
                                      const NamedTensors& buffers, Communicator& communicator,
                                      Probe& probe);

}  // namespace lockstep
