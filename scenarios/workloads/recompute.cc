#include "scenarios/workloads/recompute.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Again {
  at::Tensor input, output;
};

Again run_again(AutogradContext* context, const Segment& segment) {
  const at::Tensor saved = context->get_saved_variables()[0];
  const at::Tensor input = saved.detach().requires_grad_(true);
  return {input, segment.run(input)};
}

const Segment& segment_of(AutogradContext* context) {
  return *reinterpret_cast<const Segment*>(context->saved_data["segment"].toInt());
}

// An IValue holds no pointer.
void save(AutogradContext* context, const at::Tensor& input, const Segment* segment) {
  context->save_for_backward({input});
  context->saved_data["segment"] = reinterpret_cast<int64_t>(segment);
}

class Reentrant : public torch::autograd::Function<Reentrant> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const Segment* segment) {
    save(context, input, segment);
    return segment->run(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& above) {
    const c10::AutoGradMode with_grad(true);
    const Again again = run_again(context, segment_of(context));
    torch::autograd::backward({again.output}, {above[0]});
    return {again.input.grad(), at::Tensor()};
  }
};

class NonReentrant : public torch::autograd::Function<NonReentrant> {
 public:
  // `parameters` in the order in which their gradients become ready without checkpointing: that of
  // a layer's backward, which is the reverse of registration.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList,
                            const Segment* segment) {
    save(context, input, segment);
    return segment->run(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& above) {
    const Segment& segment = segment_of(context);
    const c10::AutoGradMode with_grad(true);
    const Again again = run_again(context, segment);
    variable_list wanted = {again.input};
    for (auto it = segment.parameters.rbegin(); it != segment.parameters.rend(); ++it)
      if (it->requires_grad()) wanted.push_back(*it);
    const variable_list found = torch::autograd::grad({again.output}, wanted, {above[0]});
    variable_list below = {found[0]};
    size_t next = 1;
    for (auto it = segment.parameters.rbegin(); it != segment.parameters.rend(); ++it)
      below.push_back(it->requires_grad() ? found[next++] : at::Tensor());
    below.emplace_back();  // of the segment itself
    return below;
  }
};

}  // namespace

std::string checkpointing_of(const Options& model) {
  return model.has("checkpointing") ? model.text("checkpointing") : "none";
}

at::Tensor checkpointed(const std::string& how, const Segment& segment, const at::Tensor& input) {
  if (how == "none") return segment.run(input);
  if (how == "reentrant") return Reentrant::apply(input, &segment);
  LOCKSTEP_CHECK(how == "non_reentrant", "no checkpointing " + how);
  const std::vector<at::Tensor> last_first(segment.parameters.rbegin(), segment.parameters.rend());
  return NonReentrant::apply(input, at::TensorList(last_first), &segment);
}

}  // namespace lockstep
