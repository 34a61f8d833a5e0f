#include "sim/worker/control_store.h"

namespace lockstep {
namespace {

class ControlStore : public Store {
 public:
  explicit ControlStore(Control& control) : control_(control) {}
  void set(const std::string& key, const std::string& value) override { control_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    std::string value;
    if (!control_.get(key, deadline, &value))
      throw CommError(CommFailure::timeout, "rendezvous: no rank has set \"" + key + "\" in time");
    return value;
  }
  int64_t add(const std::string& key, int64_t amount) override { return control_.add(key, amount); }
  bool has(const std::string& key) override { return control_.has(key); }

 private:
  Control& control_;
};

}  // namespace

std::shared_ptr<Store> make_control_store(Control& control) {
  return std::make_shared<ControlStore>(control);
}

}  // namespace lockstep
