#include "reducer/gloo/peer_names.h"

#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <sstream>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kPatience{200};

std::string key_of(const std::string& prefix, int rank) {
  return prefix + "addresses/" + std::to_string(rank);
}

// "[127.0.0.1]:41234"; what may follow the port is left out.
std::string host_and_port(const std::string& address) {
  const size_t colon = address.rfind("]:");
  if (colon == std::string::npos) return "-";
  return address.substr(0, address.find_first_not_of("0123456789", colon + 2));
}

// Where `address` ends in the text; npos where it is not in it.
size_t end_in(const std::string& text, const std::string& address) {
  const size_t at = address.size() < 2 ? std::string::npos : text.find(address);
  if (at == std::string::npos) return at;
  const size_t end = at + address.size();
  const bool longer = end < text.size() && text[end] >= '0' && text[end] <= '9';
  return longer ? std::string::npos : end;
}

// The address that a rank has for the connection with rank `other`.
std::string address_for(const std::string& published, int other) {
  std::istringstream words(published);
  std::string word;
  for (int i = 0; i <= other; ++i) words >> word;
  return words ? word : "";
}

}  // namespace

void publish_addresses(gloo::Context& context, Store& store, const std::string& prefix) {
  std::string all;
  for (int other = 0; other < context.size; ++other) {
    const auto& pair = context.getPair(other);
    const bool connected = other != context.rank && pair != nullptr;
    all += (connected ? host_and_port(pair->address().str()) : "-") + " ";
  }
  store.set(key_of(prefix, context.rank), all);
}

CommError naming_peer(const CommError& error, const gloo::Context& context, Store& store,
                      const std::string& prefix) noexcept {
  const std::string text = error.what();
  if (text.find("]:") == std::string::npos) return error;
  try {
    const Deadline deadline = deadline_after(kPatience);
    for (int rank = 0; rank < context.size; ++rank) {
      const std::string key = key_of(prefix, rank);
      if (rank == context.rank || !store.has(key)) continue;
      const size_t end = end_in(text, address_for(store.get(key, deadline), context.rank));
      if (end == std::string::npos) continue;
      return {error.kind(),
              text.substr(0, end) + " (rank " + std::to_string(rank) + ")" + text.substr(end)};
    }
  } catch (const std::exception&) {
    // Without a store the address alone has to do.
  }
  return error;
}

}  // namespace lockstep
