#include "reducer/gloo/gloo_context.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "reducer/compat.h"

namespace lockstep {

void on_device_thread(const std::function<void()>& make_device) {
  std::exception_ptr error;
  std::thread thread([&] {
    const sched_param no_priority{};
    sched_setscheduler(0, SCHED_BATCH, &no_priority);  // where it is refused, it is only slower
    try {
      make_device();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  store_->set(prefix_ + key, std::string(data.begin(), data.end()));
}

std::vector<char> GlooStore::get(const std::string& key) {
  const std::string value = store_->get(prefix_ + key, deadline_);
  return {value.begin(), value.end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) store_->get(prefix_ + key, deadline_);
}

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

namespace {

// Gloo puts source places in front and advice behind, c10d a backtrace; one line is wanted.
std::string one_line(const std::exception& error) {
  const auto* const of_c10 = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_c10 == nullptr ? error.what() : of_c10->what_without_backtrace();
  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  const size_t advice = text.find(". This is typically");
  if (advice != std::string::npos) text.erase(advice);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool holds(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

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

std::shared_ptr<gloo::Context> connect_gloo(const CommOptions& options,
                                            const std::shared_ptr<Store>& store,
                                            Deadline deadline) {
  try {
    const std::string token =
        shared_token(options.rank, *store, options.prefix + kGlooPrefix, deadline);
    std::shared_ptr<gloo::transport::Device> device;
    on_device_thread([&] { device = make_guarded_device(options.address, token); });
    auto context = std::make_shared<gloo::rendezvous::Context>(
        static_cast<int>(options.rank), static_cast<int>(options.world_size));
    // Pairs keep this for good: it bounds old-style collectives, whose own deadline comes earlier.
    context->setTimeout(std::max(time_left(deadline), std::chrono::milliseconds(1)));
    auto gloo_store = std::make_shared<GlooStore>(store, options.prefix + kGlooPrefix, deadline);
    compat::connect_full_mesh(*context, gloo_store, device);
    return context;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    throw gloo_error("connecting " + std::to_string(options.world_size) + " ranks over Gloo", error,
                     Clock::now() >= deadline);
  }
}

void abort_gloo(gloo::Context& context) noexcept {
  std::array<char, 1> byte{};
  try {
    const auto buffer = context.createUnboundBuffer(byte.data(), byte.size());
    buffer->waitRecv(nullptr, std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // This is the time-out that does it.
  }
}

CommError gloo_error(const std::string& what, const std::exception& error, bool aborted) {
  const std::string text = one_line(error);
  if (aborted) return {CommFailure::timeout, what + ": timed out (" + text + ")"};
  if (holds(text, {"imed out", "imeout"})) return {CommFailure::timeout, what + ": " + text};
  if (holds(text, {"losed", "reset", "roken pipe", "Read error", "Write error", "refused"})) {
    return {CommFailure::peer_lost, what + ": " + text};
  }
  return {CommFailure::rejected, what + ": " + text};
}

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
