#pragma once

#include <gloo/rendezvous/store.h>

#include <memory>
#include <string>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// In front of Gloo's own keys, behind the group's prefix.
inline constexpr const char* kGlooPrefix = "gloo/";

// Our Store as Gloo wants one, for the time of connecting. What later Gloo versions add to the
// class has defaults there.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(std::shared_ptr<lockstep::Store> store, std::string prefix, Deadline deadline)
      : store_(std::move(store)), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  // The deadline of connecting counts, not Gloo's own time-out.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override;

 private:
  const std::shared_ptr<lockstep::Store> store_;
  const std::string prefix_;
  const Deadline deadline_;
};

}  // namespace lockstep
