#include "sim/launch/store.h"

#include <cstdlib>

namespace lockstep {
namespace {

// A member's numbers may be any: beyond the edge of their type they begin again at the other.
int64_t sum_of(int64_t before, const std::string& amount) {
  const int64_t added = std::strtoll(amount.c_str(), nullptr, 10);
  return static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(added));
}

}  // namespace

void RunStore::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  std::vector<Parked> answered;
  std::erase_if(parked_, [&](const Parked& p) {
    if (p.key != key) return false;
    answered.push_back(p);
    return true;
  });
  for (const Parked& p : answered) reply_(p.client, {p.id, value});
}

bool RunStore::handle(int64_t client, const Channel::Message& message) {
  if (message.size() < 3) return false;
  const std::string &operation = message[0], &id = message[1], &key = message[2];
  const auto found = values_.find(key);
  if (operation == "set" && message.size() == 4) {
    set(key, message[3]);
    reply_(client, {id, "ok"});
  } else if (operation == "get") {
    if (found != values_.end())
      reply_(client, {id, found->second});
    else
      parked_.push_back({client, id, key});
  } else if (operation == "add" && message.size() == 4) {
    const int64_t before =
        found == values_.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
    const std::string sum = std::to_string(sum_of(before, message[3]));
    set(key, sum);
    reply_(client, {id, sum});
  } else if (operation == "has") {
    reply_(client, {id, found == values_.end() ? "0" : "1"});
  } else if (operation == "drop") {
    std::erase_if(parked_, [&](const Parked& p) { return p.client == client && p.id == id; });
  } else {
    return false;
  }
  return true;
}

std::string RunStore::awaited_by(int64_t client) const {
  for (const Parked& p : parked_)
    if (p.client == client) return p.key;
  return "";
}

void RunStore::leave(int64_t client) {
  std::erase_if(parked_, [&](const Parked& p) { return p.client == client; });
}

}  // namespace lockstep
