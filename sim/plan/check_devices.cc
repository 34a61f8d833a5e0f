#include <fmt/format.h>

#include <algorithm>

#include "scenarios/scenario.h"
#include "sim/plan/lanes.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

class DeviceCheck : PartCheck {
 public:
  DeviceCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    ids();
    const bool fake = s_.device == "fake";
    const bool cuda = s_.device == "cuda";
    need(fake || s_.devices_per_rank == 1, "/devices_per_rank",
         fmt::format("a rank on {} has one device, not {}", cuda ? "a GPU" : "the cpu",
                     s_.devices_per_rank),
         "1, or /device \"fake\"");
    need(fake || s_.streams == "in_order", "/streams",
         cuda ? "a GPU's streams are as late as they are" : "the cpu has no streams",
         "\"in_order\", or /device \"fake\"");
    need(cuda || s_.communicator.kind != "nccl", "/communicator/kind",
         fmt::format("NCCL knows the memory of GPUs alone, not device {}", s_.device),
         "another kind, or /device \"cuda\"");
    if (cuda) return on_cuda();
    if (!fake) return;
    if (s_.streams == "late") late();
    const Options& model = s_.model.options;
    refuse(s_.model.kind != "mlp" ||
               (model.has("float64_layers") && !model.integers("float64_layers").empty()),
           "of the models only mlp is built on fake devices, in one dtype", "/model/kind mlp");
    refuse(s_.devices_per_rank > 1 && registers_backwards(model),
           "layers are laid on several devices in the order of registration",
           "/model/register \"forwards\"");
    if (s_.model.kind == "mlp") {
      const auto layers = static_cast<int64_t>(model.integers("hidden").size()) + 1;
      need(s_.devices_per_rank <= layers, "/devices_per_rank",
           fmt::format("{} layers cannot lie on {} devices", layers, s_.devices_per_rank),
           fmt::format("at most {}", layers));
    }
    parts({"gloo", "c10d"});
  }

 private:
  // What has not been thought through on a GPU is refused; so is what keeps tensors of the cpu.
  void on_cuda() {
    refuse(is_one_of(s_.model.kind, {"registered", "torchscript"}),
           "a model of one's own is built on the cpu", "another /model/kind");
    refuse(s_.model.options.has("norm") && s_.model.options.text("norm").starts_with("sync"),
           "SyncBatchNorm adds its counts up on the cpu", "/model/norm \"batch\"");
    refuse(s_.checkpoint.kind != "none", "checkpoints are those of the cpu", "no checkpoint");
    refuse(s_.model_averaging.kind != "none" || s_.join_divide_by.has_value(),
           "ranks that part, or leave, do so on the cpu", "neither");
    refuse(s_.golden.has_value(), "a stored golden has the cpu's bits", "no golden");
    parts({"gloo", "c10d", "nccl"});
  }

  // DDP refuses this as well: which of its devices would the module be moved to?
  void ids() {
    if (s_.device_ids.empty()) return;
    const bool several = s_.devices_per_rank > 1;
    need(!several, "/device_ids",
         fmt::format("a model over {} devices cannot live on those given", s_.devices_per_rank),
         "no device_ids with /devices_per_rank above 1");
    if (!several)
      need(s_.device_ids == std::vector<int64_t>{0}, "/device_ids",
           fmt::format("a rank has one device, 0, and {} are given", s_.device_ids.size()), "[0]");
  }

  void late() {
    const auto refuse_late = [&](bool bad, std::string why, const std::string& allowed) {
      need(!bad, "/streams", std::move(why), fmt::format("\"in_order\", or {}", allowed));
    };
    refuse_late(s_.communicator.kind != "gloo",
                fmt::format("communicator {} has no staging", s_.communicator.kind),
                "/communicator/kind gloo");
    refuse_late(s_.checkpoint.kind != "none", "checkpoints are read in order", "no checkpoint");
  }

  void parts(std::initializer_list<const char*> communicators) {
    refuse(s_.compute.kind == "emulated", "emulated layers lie on no device",
           "/compute/kind \"real\"");
    // Threads share one autograd, which counts its devices once; shm hands out memory of the cpu.
    refuse(!is_one_of(s_.communicator.kind, communicators),
           fmt::format("communicator {} knows no devices", s_.communicator.kind),
           "/communicator/kind gloo, c10d, or on a GPU nccl");
    refuse(s_.dtype == "bfloat16", "devices are given float32 and float64 only", "another /dtype");
    refuse(!is_one_of(s_.reducer.kind, {"bucketed", "c10d", "flat", "per_parameter", "manual"}),
           fmt::format("reducer {} keeps its tensors on the cpu", s_.reducer.kind),
           "bucketed, c10d, flat, per_parameter or manual");
    refuse(s_.comm_hook.kind != "none" && s_.comm_hook.kind != "allreduce",
           fmt::format("comm hook {} computes on the cpu", s_.comm_hook.kind),
           "/comm_hook/kind none or allreduce");
    refuse(s_.optimizer_sharding.kind != "none", "the optimizer is shared out on the cpu only",
           "/optimizer_sharding none");
    refuse(s_.loss_scaling.kind != "none" || s_.clipping.kind != "none",
           "loss scaling and clipping look at the cpu only", "neither");
  }

  void refuse(bool bad, std::string why, const std::string& allowed) {
    need(!bad, "/device", std::move(why), fmt::format("\"cpu\", or {}", allowed));
  }
};

}  // namespace

void check_devices(const Scenario& scenario, InputErrors* errors) {
  DeviceCheck(scenario, errors).run();
}

namespace {

class EmulatedCheck : PartCheck {
 public:
  EmulatedCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const auto manifest = manifest_of(s_.model, s_.dtype);
    if (!manifest)
      return refuse(true, fmt::format("the layers of model {} are not known", s_.model.kind),
                    "a shipped model");
    const auto& parameters = manifest->parameters;
    refuse(std::any_of(parameters.begin(), parameters.end(),
                       [](const TensorSpec& parameter) { return parameter.sparse_gradient; }),
           "emulated gradients are dense, and the model has a sparse one", "/model/sparse false");
    const Options& model = s_.model.options;
    const std::string norm = model.has("norm") ? model.text("norm") : "";
    refuse(norm == "sync" || norm == "sync_equal",
           fmt::format("norm {} asks all ranks in every layer, which no timer does", norm),
           "another /model/norm");
    const std::string unused = model.has("unused") ? model.text("unused") : "none";
    refuse(unused != "none", "emulated layers use all parameters", "/model/unused \"none\"");
    refuse(model.has("first") && model.text("first") != "left",
           "emulated layers come in one order on all ranks", "/model/first \"left\"");
    refuse(model.has("repeat") && model.integer("repeat") > 1,
           "emulated layers are computed once in a forward", "/model/repeat 1");
    refuse(s_.reducer.kind == "data_parallel",
           "replicas that are threads of one rank have no timers of their own",
           "another /reducer/kind");
    refuse(asks_for(s_, Lane::exact), "lane exact judges arithmetic that does not round",
           "/lanes without \"exact\"");
    refuse(s_.golden.has_value(), "a stored golden holds what computed gradients lead to",
           "no /golden");
    refuse(s_.loss.options.has("published"), "published losses are those of computed gradients",
           "no /loss/published");
  }

 private:
  void refuse(bool bad, std::string why, const std::string& allowed) {
    need(!bad, "/compute/kind", std::move(why), fmt::format("\"real\", or {}", allowed));
  }
};

}  // namespace

void check_emulated(const Scenario& scenario, InputErrors* errors) {
  EmulatedCheck(scenario, errors).run();
}

}  // namespace lockstep
