#pragma once

#include <gloo/rendezvous/store.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/communicator.h"

namespace gloo {
class Context;
namespace transport {
class Device;
}
}  // namespace gloo
namespace lockstep {

// Calls `make_device` on a short-lived thread under SCHED_BATCH, which the event loop that Gloo
// starts there inherits: it keeps its share of the processor but does not push others off it when
// it wakes. That loop tries a pair's lock and, if another thread holds it, asks epoll again at
// once; with more threads than cores it would spin away the time that the holder needs
// (docs/performance.md has the figures). Blocks until done; exceptions come out.
void on_device_thread(const std::function<void()>& make_device);

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

// Connects all ranks of a group over TCP, bound to options.address alone (Gloo's own default is the
// host name's address). Throws CommError.
std::shared_ptr<gloo::Context> connect_gloo(const CommOptions& options,
                                            const std::shared_ptr<Store>& store, Deadline deadline);

// Whether ProcessGroupGloo takes devices of the Gloo that we are linked with: not where LibTorch
// has another one inside.
#ifdef LOCKSTEP_OWN_GLOO
inline constexpr bool kOneGloo = false;
#else
inline constexpr bool kOneGloo = true;
#endif

// Who connects to one of Gloo's ports is taken for a rank: up to early 2023 whoever comes first to
// the port that is listened at for a pair of ranks; later, with one port for all, whoever names the
// pair's number, and numbers count from 0. The pairs of this device let in who first says `token`
// and which rank it is, or have random numbers that only the store tells; all others are closed or
// ignored, and nothing else of what is sent differs from Gloo's own. All ranks of a group must use
// it, or none. `address`: a host name or number, to which alone it is bound.
std::shared_ptr<gloo::transport::Device> make_guarded_device(const std::string& address,
                                                             const std::string& token);

// Random, made by rank 0 and left under `prefix` in the store for the others. Throws CommError.
std::string shared_token(int64_t rank, Store& store, const std::string& prefix, Deadline deadline);

// Makes every wait on this context fail now, on whatever thread it is: Gloo cannot cancel, but a
// receive that times out closes all pairs of its context. Blocks for about a millisecond.
void abort_gloo(gloo::Context& context) noexcept;

// The CommError that an exception of Gloo stands for. `aborted`: abort_gloo() came first, so that
// the deadline is the cause, whatever the text says.
CommError gloo_error(const std::string& what, const std::exception& error, bool aborted);

// Gloo's errors name a peer by the address that it has for the connection with this rank: these say
// which rank that is.

// Leaves this rank's addresses under `prefix` in the store. The context is connected.
void publish_addresses(gloo::Context& context, Store& store, const std::string& prefix);

// The same error with the rank behind the address as its peer, and in its text, "... closed by peer
// [127.0.0.1]:41234 (rank 2)"; unchanged where it names no address of a peer. It may wait a moment
// for the store. With gloo_error() the one place that reads Gloo's sentences.
CommError naming_peer(const CommError& error, const gloo::Context& context, Store& store,
                      const CommOptions& options) noexcept;

}  // namespace lockstep
