#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// Our Store as c10d wants one. It never deletes keys and cannot list them: ProcessGroupGloo does
// not ask for that.
class StoreAdapter : public c10d::Store {
 public:
  StoreAdapter(std::shared_ptr<lockstep::Store> store, std::string prefix, Deadline deadline)
      : store_(std::move(store)), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  // Pure virtual in later versions, absent in earlier ones.
  c10::intrusive_ptr<c10d::Store> clone();

 private:
  const std::shared_ptr<lockstep::Store> store_;
  const std::string prefix_;
  const Deadline deadline_;
};

}  // namespace lockstep
