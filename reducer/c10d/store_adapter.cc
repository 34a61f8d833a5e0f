#include "reducer/c10d/store_adapter.h"

#include <algorithm>

namespace lockstep {

void StoreAdapter::set(const std::string& key, const std::vector<uint8_t>& value) {
  store_->set(prefix_ + key, std::string(value.begin(), value.end()));
}

std::vector<uint8_t> StoreAdapter::get(const std::string& key) {
  const std::string value = store_->get(prefix_ + key, deadline_);
  return {value.begin(), value.end()};
}

int64_t StoreAdapter::add(const std::string& key, int64_t value) {
  return store_->add(prefix_ + key, value);
}

bool StoreAdapter::deleteKey(const std::string&) { return false; }

bool StoreAdapter::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return store_->has(prefix_ + key); });
}

int64_t StoreAdapter::getNumKeys() { throw std::logic_error("this store does not count its keys"); }

void StoreAdapter::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) store_->get(prefix_ + key, deadline_);
}

void StoreAdapter::wait(const std::vector<std::string>& keys,
                        const std::chrono::milliseconds& timeout) {
  const Deadline deadline = std::min(deadline_, deadline_after(timeout));
  for (const std::string& key : keys) store_->get(prefix_ + key, deadline);
}

c10::intrusive_ptr<c10d::Store> StoreAdapter::clone() {
  return c10::make_intrusive<StoreAdapter>(store_, prefix_, deadline_);
}

}  // namespace lockstep
