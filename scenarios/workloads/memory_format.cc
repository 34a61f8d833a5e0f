#include "scenarios/workloads/memory_format.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

at::Tensor sliced(const at::Tensor& weights) {
  std::vector<int64_t> sizes = weights.sizes().vec();
  sizes.back() *= 2;
  const at::Tensor slice = at::zeros(sizes, weights.options()).narrow(-1, 0, weights.size(-1));
  return at::Tensor(slice).copy_(weights);
}

at::Tensor laid_out(const std::string& format, const at::Tensor& weights) {
  if (format == "channels_last")
    return weights.dim() == 4 ? weights.contiguous(at::MemoryFormat::ChannelsLast) : weights;
  if (format == "transposed") return weights.transpose(-2, -1).contiguous().transpose(-2, -1);
  LOCKSTEP_CHECK(format == "sliced", "no memory format " + format);
  return sliced(weights);
}

}  // namespace

std::string memory_format_of(const Options& model) {
  return model.has("memory_format") ? model.text("memory_format") : "contiguous";
}

void lay_out_weights(const std::string& format, const Model& model) {
  if (format == "contiguous") return;
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.dim() >= 2)
      at::Tensor(parameter.tensor).set_data(laid_out(format, parameter.tensor.detach()));
}

}  // namespace lockstep
