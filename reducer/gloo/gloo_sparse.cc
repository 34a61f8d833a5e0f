#include "reducer/gloo/gloo_sparse.h"

#include <gloo/allgatherv.h>
#include <gloo/context.h>

#include <vector>

#include "reducer/comm/sparse_sum.h"

namespace lockstep {

void all_reduce_sparse(const std::shared_ptr<gloo::Context>& context, uint32_t* tag,
                       const at::Tensor& tensor, std::chrono::milliseconds timeout) {
  const auto gather = [&](const void* own, const std::vector<int64_t>& bytes, void* all) {
    const std::vector<size_t> counts(bytes.begin(), bytes.end());
    gloo::AllgathervOptions options(context);
    options.setTag((*tag)++);
    options.setTimeout(timeout);
    // Gloo does not write to it.
    options.setInput(static_cast<uint8_t*>(const_cast<void*>(own)),
                     counts[static_cast<size_t>(context->rank)]);
    options.setOutput(static_cast<uint8_t*>(all), counts);
    gloo::allgatherv(options);
  };
  sum_sparse_tensors(tensor, context->size, gather);
}

}  // namespace lockstep
