#include "reducer/gloo/peer_names.h"

#include <arpa/inet.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
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

// Port and IPv4 address of "[127.0.0.1]:41234" as a sockaddr may hold them; empty where it is none.
// Gloo's port is the sockaddr's number as it stands (2022) or the port itself (later).
std::vector<std::string> raw_addresses(const std::string& address) {
  const size_t close = address.find("]:");
  in_addr host{};
  if (close == std::string::npos ||
      ::inet_pton(AF_INET, address.substr(1, close - 1).c_str(), &host) != 1)
    return {};
  const auto port = static_cast<uint16_t>(std::strtoul(address.c_str() + close + 2, nullptr, 10));
  std::vector<std::string> raw;
  for (const uint16_t number : {port, htons(port)}) {
    std::string bytes(sizeof number + sizeof host, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    std::memcpy(bytes.data() + sizeof number, &host, sizeof host);
    raw.push_back(std::move(bytes));
  }
  return raw;
}

bool listened_at(const std::string& exchanged, const std::vector<std::string>& raw) {
  return std::any_of(raw.begin(), raw.end(), [&](const std::string& bytes) {
    return exchanged.find(bytes) != std::string::npos;
  });
}

// The rank behind an address in an error, and where that ends in the text.
struct Peer {
  int rank = 0;
  size_t end = 0;
};

std::optional<Peer> by_connection(const std::string& text, const gloo::Context& context,
                                  Store& store, const std::string& prefix, Deadline deadline) {
  for (int rank = 0; rank < context.size; ++rank) {
    const std::string key = key_of(prefix, rank);
    if (rank == context.rank || !store.has(key)) continue;
    const size_t end = end_in(text, address_for(store.get(key, deadline), context.rank));
    if (end != std::string::npos) return Peer{rank, end};
  }
  return std::nullopt;
}

// Of a connection that it accepted, Gloo of 2022 knows the peer by the address that the peer itself
// listened at: it is among those that the ranks exchanged.
std::optional<Peer> by_listener(const std::string& text, const gloo::Context& context, Store& store,
                                const std::string& prefix, Deadline deadline) {
  const size_t begin = text.rfind('[', text.find("]:"));
  if (begin == std::string::npos) return std::nullopt;
  const std::string address = host_and_port(text.substr(begin));
  const auto raw = raw_addresses(address);
  for (int rank = 0; rank < context.size; ++rank) {
    const std::string key = prefix + kGlooPrefix + std::to_string(rank);
    if (rank == context.rank || !store.has(key)) continue;
    if (listened_at(store.get(key, deadline), raw)) return Peer{rank, begin + address.size()};
  }
  return std::nullopt;
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
                      const CommOptions& options) noexcept {
  const std::string text = error.what();
  if (text.find("]:") == std::string::npos) return error;
  try {
    const Deadline deadline = deadline_after(kPatience);
    auto peer = by_connection(text, context, store, options.prefix, deadline);
    if (!peer) peer = by_listener(text, context, store, options.prefix, deadline);
    if (!peer) return error;
    CommFacts facts = error.facts();
    facts.peer = options.names.of(peer->rank);
    return {error.kind(),
            text.substr(0, peer->end) + " (rank " + std::to_string(facts.peer) + ")" +
                text.substr(peer->end),
            facts};
  } catch (const std::exception&) {
    // Without a store the address alone has to do.
  }
  return error;
}

}  // namespace lockstep
