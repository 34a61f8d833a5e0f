#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>

namespace gloo {
class Context;
}

namespace lockstep {

// Replaces a sparse COO tensor by the coalesced sum over ranks: gathers how many entries each rank
// has, then their indices and values, and adds them in order of rank. Blocking; takes tags from
// *tag on, the same number on every rank. Throws what Gloo throws.
void all_reduce_sparse(const std::shared_ptr<gloo::Context>& context, uint32_t* tag,
                       const at::Tensor& tensor, std::chrono::milliseconds timeout);

}  // namespace lockstep
