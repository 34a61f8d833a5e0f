#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "scenarios/base/clock.h"

namespace lockstep {

enum class CommFailure { timeout, peer_lost, rejected, closed };
const char* to_word(CommFailure failure);

// What is known of a failure beside its kind; -1: not known, or there is none. Whoever makes the
// error knows the peer, the recording decorator the rest.
struct CommFacts {
  // Rank of the whole job that this one waited for, whose connection it lost, or that calls other
  // collectives than most.
  int64_t peer = -1;
  int64_t sequence = -1, bucket = -1;        // of the collective, as in Probe::arrival()
  int64_t waited_ms = -1, deadline_ms = -1;  // since it was called; that it was given
};

// A peer's or the environment's failure, seen by this rank. Whatever is decided by it is decided by
// kind() and facts(): what() names operation and cause in one line for people, and is not parsed.
class CommError : public std::runtime_error {
 public:
  CommError(CommFailure kind, const std::string& message, const CommFacts& facts = {})
      : std::runtime_error(message), kind_(kind), facts_(facts) {}
  CommFailure kind() const { return kind_; }
  const CommFacts& facts() const { return facts_; }

 private:
  CommFailure kind_;
  CommFacts facts_;
};

// One collective under way. Thread-safe.
class CommWork {
 public:
  virtual ~CommWork() = default;
  virtual bool is_done() const = 0;
  // Blocks until the collective is done or its deadline has passed. Throws CommError.
  virtual void wait() = 0;
  // Calls back once when the collective ends, with its error or nullptr: on the thread that
  // completes it, or at once on this one if it has ended already. The callback must not block.
  virtual void on_done(std::function<void(std::exception_ptr)> callback) = 0;
};
using CommWorkPtr = std::shared_ptr<CommWork>;

// Collectives of one process group. Every rank calls the same operations in the same order, with
// tensors of equal size and dtype, dense and contiguous (all_reduce: or sparse; all_reduce and
// broadcast: or of other strides, the same on every rank, that leave no gaps in memory; elements
// are then taken as they lie there). Calls return at once; the tensors must not be read, written or
// freed until the work is done. Collectives run in the order of the calls. Thread rule: one thread
// at a time calls; works may be waited for anywhere. A failed collective leaves the communicator
// closed: later calls throw CommError(closed).
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;

  // Sum over ranks, in place, in the reduction order of the communicator's algorithm. A sparse COO
  // tensor, which may hold other rows on every rank, becomes the coalesced sum: each rank's own is
  // coalesced, and they are added in order of rank whatever the algorithm, as ProcessGroupGloo
  // does.
  virtual CommWorkPtr all_reduce(const at::Tensor& tensor, Deadline deadline) = 0;
  virtual CommWorkPtr broadcast(const at::Tensor& tensor, int64_t root, Deadline deadline) = 0;
  // output: [world_size, input.numel()] or any tensor of that many elements.
  virtual CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input,
                                 Deadline deadline) = 0;
  // input: world_size x output.numel() elements; rank r receives the sum of part r.
  virtual CommWorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                     Deadline deadline) = 0;
  // root's input: world_size x output.numel() elements, part r goes to rank r; elsewhere undefined.
  virtual CommWorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int64_t root,
                              Deadline deadline) = 0;
  // root's output: world_size x input.numel() elements; elsewhere undefined.
  virtual CommWorkPtr gather(const at::Tensor& output, const at::Tensor& input, int64_t root,
                             Deadline deadline) = 0;
  // Of both as many elements, one part a rank: part r of input goes to rank r, part r of output
  // comes from it.
  virtual CommWorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input,
                                 Deadline deadline) = 0;
  virtual CommWorkPtr barrier(Deadline deadline) = 0;

  // Decorators number the calls between the two that bring buckets together (averages_bucket()).
  virtual void begin_backward() {}
  virtual void end_backward() {}

  // Zeros, one-dimensional, for a tensor that is summed again and again: where this communicator
  // can sum memory of some kind without copying it, it is of that kind if there is any left. Of no
  // consequence for results. It may outlive the communicator.
  virtual at::Tensor allocate(int64_t elements, at::ScalarType dtype) = 0;

  // Ends the communicator. Blocks until all ranks have said so (Gloo loses data of slow peers
  // otherwise) or the deadline has passed; never throws. After a failure it does not wait.
  virtual void close(Deadline deadline) noexcept = 0;
};

// A key/value service through which ranks find each other. Thread-safe. Values are bytes.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until the key is there. Throws CommError(timeout) past the deadline.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  // Adds to an integer (0 if absent) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  virtual bool has(const std::string& key) = 0;
};

// What the ranks of a group are called in the whole job, of which it may be a part.
struct RankNames {
  int64_t first = 0, stride = 1;
  int64_t of(int64_t rank) const { return first + rank * stride; }
};

struct CommOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string algorithm = "ring";  // ring | bcube | halving_doubling | ring_chunked | rank_order
  std::string address = "127.0.0.1";
  std::string prefix;    // of keys in the store: several groups may share one
  RankNames names = {};  // errors name ranks by these
};

// Gloo over TCP. Blocks until connected with all ranks or the deadline has passed (CommError).
std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     Deadline deadline);
// LibTorch's own ProcessGroupGloo (ring only).
std::unique_ptr<Communicator> make_c10d_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     Deadline deadline);

// Memory that the ranks of one host share, in which they add in the order of Gloo's algorithm of
// the same name, or of rank_order. Ranks are processes, or threads. Blocks until all have attached
// or the deadline has passed (CommError). A peer that dies is noticed within milliseconds. `store`
// is needed until then only.
std::unique_ptr<Communicator> make_shm_communicator(const CommOptions& options,
                                                    std::shared_ptr<Store> store,
                                                    Deadline deadline);

// Ranks as threads of one process. One hub per process group; each rank's communicator keeps it
// alive. Sums are made by the rank that arrives last, in the order of the algorithm named.
class LocalHub;
std::shared_ptr<LocalHub> make_local_hub(int64_t world_size);
std::unique_ptr<Communicator> make_local_communicator(const CommOptions& options,
                                                      std::shared_ptr<LocalHub> hub);

// Decorator: reports arrival and end of every collective to the probe, numbered from 1. Buckets
// are numbered by the calls that bring one together (all_reduce, reduce_scatter, all_to_all) since
// begin_backward(); outside a backward and for every other operation there is none (-1). `inner`
// must outlive it.
class Probe;
std::unique_ptr<Communicator> make_recording(Communicator& inner, Probe& probe);

}  // namespace lockstep
