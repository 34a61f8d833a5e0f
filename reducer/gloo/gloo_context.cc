#include "reducer/gloo/gloo_context.h"

#include <c10/util/Exception.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>

#include "reducer/comm/device_thread.h"
#include "reducer/compat.h"
#include "reducer/gloo/gloo_store.h"
#include "reducer/gloo/guarded_device.h"

namespace lockstep {
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

}  // namespace

std::shared_ptr<gloo::Context> connect_gloo(const CommOptions& options,
                                            const std::shared_ptr<Store>& store,
                                            Deadline deadline) {
  try {
    const std::string token =
        shared_token(options.rank, *store, options.prefix + kGlooPrefix, deadline);
    gloo::transport::tcp::attr address;
    address.hostname = options.address;
    std::shared_ptr<gloo::transport::Device> device;
    on_device_thread([&] {
      device = make_guarded_device(options.address, token);
      if (device == nullptr) device = gloo::transport::tcp::CreateDevice(address);
    });
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

}  // namespace lockstep
