#include "reducer/gloo/peer_names.h"

#include <arpa/inet.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "reducer/gloo/gloo_store.h"

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

// Port and IPv4 address of "[127.0.0.1]:41234", as a sockaddr holds them; "" where there are none.
// Gloo's port is the sockaddr's number as it stands (2022) or the port itself (later).
std::vector<std::string> raw_addresses(const std::string& text) {
  const size_t open = text.find('['), close = text.find("]:");
  in_addr host{};
  if (open >= close || close == std::string::npos ||
      ::inet_pton(AF_INET, text.substr(open + 1, close - open - 1).c_str(), &host) != 1)
    return {};
  const auto port = static_cast<uint16_t>(std::strtoul(text.c_str() + close + 2, nullptr, 10));
  std::vector<std::string> raw;
  for (const uint16_t number : {port, htons(port)}) {
    std::string bytes(sizeof number + sizeof host, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    std::memcpy(bytes.data() + sizeof number, &host, sizeof host);
    raw.push_back(std::move(bytes));
  }
  return raw;
}

// Of a connection that it accepted, Gloo of 2022 knows the peer by the address that the peer itself
// listened at: it is among those that the ranks exchanged.
bool listened_at(const std::string& exchanged, const std::vector<std::string>& raw) {
  return std::any_of(raw.begin(), raw.end(), [&](const std::string& bytes) {
    return exchanged.find(bytes) != std::string::npos;
  });
}

// Where the peer's address ends in `text`, if it is the one of `rank`; else npos.
size_t end_of_peer(const std::string& text, int rank, int own_rank, Store& store,
                   const std::string& prefix, Deadline deadline) {
  const std::string key = key_of(prefix, rank);
  if (store.has(key)) {
    const size_t end = end_in(text, address_for(store.get(key, deadline), own_rank));
    if (end != std::string::npos) return end;
  }
  const std::string exchanged = prefix + kGlooPrefix + std::to_string(rank);
  if (!store.has(exchanged) || !listened_at(store.get(exchanged, deadline), raw_addresses(text)))
    return std::string::npos;
  return std::min(text.size(), text.find_first_not_of("0123456789", text.find("]:") + 2));
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
      if (rank == context.rank) continue;
      const size_t end = end_of_peer(text, rank, context.rank, store, prefix, deadline);
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
