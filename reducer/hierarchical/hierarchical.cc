#include "reducer/hierarchical/hierarchical.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

void within(const std::string& where, const std::function<void()>& action) {
  try {
    action();
  } catch (const CommError& error) {
    throw CommError(error.kind(), where + ": " + error.what(), error.facts());
  }
}

class HierarchicalCommunicator : public QueuedCommunicator {
 public:
  HierarchicalCommunicator(const CommOptions& options, int64_t ranks_per_host,
                           const std::shared_ptr<Store>& store, Deadline deadline)
      : QueuedCommunicator(options.rank, options.world_size),
        hosts_{options.world_size, ranks_per_host},
        host_(hosts_.of(options.rank)),
        leads_(options.rank == hosts_.first(host_)) {
    if (options.world_size == 1) return;
    connect(options, store, deadline);
    thread_ = std::make_unique<CommThread>();
  }

  ~HierarchicalCommunicator() override { shut_down(); }

  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    const std::lock_guard lock(mutex_);
    return inside_ ? inside_->allocate(elements, dtype)
                   : CollectiveCommunicator::allocate(elements, dtype);
  }

  // After a failure nobody waits; before one, what is queued is let through first.
  void close(Deadline deadline) noexcept override {
    if (thread_ != nullptr && !failed_ && drained(*thread_, deadline)) {
      for (std::unique_ptr<Communicator>* group : {&inside_, &between_}) {
        const std::unique_ptr<Communicator> own = take(*group);
        if (own) own->close(deadline);
      }
    }
    shut_down();
  }

 protected:
  std::exception_ptr attempt(const CollectiveCall& call, const std::string& what) override {
    return error_of(what, [&] { perform(call); });
  }
  void give_up() noexcept override { leave(); }  // at once: others wait for this rank

 private:
  void connect(CommOptions options, const std::shared_ptr<Store>& store, Deadline deadline) {
    const CommOptions whole = options;
    options.rank = whole.rank - hosts_.first(host_);
    options.world_size = hosts_.size(host_);
    options.prefix = whole.prefix + "host" + std::to_string(host_) + "/";
    options.names = {whole.names.of(hosts_.first(host_)), whole.names.stride};
    in_host([&] { inside_ = make_shm_communicator(options, store, deadline); });
    if (!leads_) return;
    options.rank = host_;
    options.world_size = hosts_.count();
    options.prefix = whole.prefix + "hosts/";
    options.names = {whole.names.first, hosts_.per_host * whole.names.stride};
    between_hosts([&] { between_ = make_gloo_communicator(options, store, deadline); });
  }

  void in_host(const std::function<void()>& action) const {
    within("within host " + std::to_string(host_), action);
  }
  static void between_hosts(const std::function<void()>& action) {
    within("between hosts", action);
  }

  // Blocks. A group may be taken away meanwhile: that ends the wait.
  void call_group(const std::unique_ptr<Communicator>& group, const CollectiveCall& call) {
    CommWorkPtr work;
    {
      const std::lock_guard lock(mutex_);
      if (!group) throw CommError(CommFailure::closed, "the communicator is closed");
      work = forward(*group, call);
    }
    work->wait();
  }
  void inside(const CollectiveCall& call) {
    in_host([&] { call_group(inside_, call); });
  }
  // Of leaders; others have nothing to do.
  void between(const CollectiveCall& call) {
    if (leads_ && hosts_.count() > 1) between_hosts([&] { call_group(between_, call); });
  }
  // What the leader has now, all ranks of the host get.
  void broadcast_in_host(const at::Tensor& tensor, Deadline deadline) {
    if (hosts_.count() > 1) inside({Operation::broadcast, tensor, {}, 0, deadline});
  }

  void perform(const CollectiveCall& call) {
    const c10::NoGradGuard no_grad;
    if (call.operation != Operation::barrier && own_tensor(call).numel() == 0 &&
        !own_tensor(call).is_sparse())
      return;
    switch (call.operation) {
      case Operation::all_reduce:
        return call.output.is_sparse() ? sum_sparse(call) : sum(call.output, call.deadline);
      case Operation::reduce_scatter: {
        const at::Tensor whole = call.input.clone();
        sum(whole, call.deadline);
        call.output.view({-1}).copy_(part_of(whole, rank(), world_size()));
        return;
      }
      case Operation::broadcast:
        return broadcast_from(call.output, call.root, call.deadline);
      case Operation::all_gather:
        return all_gather_blocks(call.output, call.input, call.deadline);
      case Operation::scatter: {
        const at::Tensor whole = rank() == call.root ? call.input : parts_like(call.output);
        broadcast_from(whole, call.root, call.deadline);
        call.output.view({-1}).copy_(part_of(whole, rank(), world_size()));
        return;
      }
      case Operation::gather:
        return all_gather_blocks(rank() == call.root ? call.output : parts_like(call.input),
                                 call.input, call.deadline);
      case Operation::all_to_all: {
        const at::Tensor all = parts_like(call.input);
        all_gather_blocks(all, call.input, call.deadline);
        const at::Tensor parts = all.view({world_size(), world_size(), -1}).select(1, rank());
        call.output.view({world_size(), -1}).copy_(parts);
        return;
      }
      case Operation::barrier:
        inside({Operation::barrier, {}, {}, 0, call.deadline});
        between({Operation::barrier, {}, {}, 0, call.deadline});
        return inside({Operation::barrier, {}, {}, 0, call.deadline});
    }
    LOCKSTEP_CHECK(false, "unknown Operation");
  }

  at::Tensor parts_like(const at::Tensor& part) const {
    return at::empty({world_size() * part.numel()}, part.options());
  }

  void sum(const at::Tensor& tensor, Deadline deadline) {
    const CollectiveCall call{Operation::all_reduce, tensor, tensor, 0, deadline};
    inside(call);
    between(call);
    broadcast_in_host(tensor, deadline);
  }

  // A broadcast: first on the root's host, then to the other leaders, then on their hosts.
  void broadcast_from(const at::Tensor& tensor, int64_t root, Deadline deadline) {
    const int64_t home = hosts_.of(root);
    if (host_ == home)
      inside({Operation::broadcast, tensor, {}, root - hosts_.first(home), deadline});
    between({Operation::broadcast, tensor, {}, home, deadline});
    if (host_ != home) broadcast_in_host(tensor, deadline);
  }

  // An all-gather: hosts may have different numbers of parts, so leaders tell each other theirs.
  void all_gather_blocks(const at::Tensor& whole, const at::Tensor& own, Deadline deadline) {
    const auto block = [&](int64_t host) {
      return whole.view({-1}).narrow(0, hosts_.first(host) * own.numel(),
                                     hosts_.size(host) * own.numel());
    };
    inside({Operation::all_gather, block(host_), own, 0, deadline});
    for (int64_t host = 0; host < hosts_.count(); ++host)
      between({Operation::broadcast, block(host), {}, host, deadline});
    broadcast_in_host(whole, deadline);
  }

  // Bytes of every rank, as long as the longest.
  void sum_sparse(const CollectiveCall& call) {
    sum_sparse_tensors(call.output, world_size(),
                       [&](const void* own, const std::vector<int64_t>& bytes, void* all) {
                         const int64_t most = *std::max_element(bytes.begin(), bytes.end());
                         if (most == 0) return;
                         const at::Tensor mine = at::zeros({most}, at::kByte);
                         const at::Tensor whole = at::empty({most * world_size()}, at::kByte);
                         const auto length_of = [&](int64_t r) {
                           return static_cast<size_t>(bytes[static_cast<size_t>(r)]);
                         };
                         if (length_of(rank()) > 0)
                           std::memcpy(mine.data_ptr(), own, length_of(rank()));
                         all_gather_blocks(whole, mine, call.deadline);
                         auto* to = static_cast<std::byte*>(all);
                         const auto* const from = static_cast<const std::byte*>(whole.data_ptr());
                         for (int64_t r = 0; r < world_size(); ++r) {
                           std::memcpy(to, from + r * most, length_of(r));
                           to += length_of(r);
                         }
                       });
  }

  std::unique_ptr<Communicator> take(std::unique_ptr<Communicator>& group) {
    const std::lock_guard lock(mutex_);
    return std::move(group);
  }

  // Peers that wait for this rank learn that it will not come; its own waits end.
  void leave() noexcept {
    failed_ = true;
    const std::lock_guard lock(mutex_);
    inside_.reset();
    between_.reset();
  }

  // Whatever is still queued ends as closed; what is under way is cut short.
  void shut_down() noexcept {
    leave();
    thread_.reset();
  }

  const Hosts hosts_;
  const int64_t host_;
  const bool leads_;
  std::mutex mutex_;  // of the groups
  std::unique_ptr<Communicator> inside_, between_;
};

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(const CommOptions& options,
                                                             int64_t ranks_per_host,
                                                             const std::shared_ptr<Store>& store,
                                                             Deadline deadline) {
  LOCKSTEP_CHECK(ranks_per_host >= 1, "a host without ranks");
  LOCKSTEP_CHECK(options.algorithm != "rank_order", "Gloo does not have rank_order");
  return std::make_unique<HierarchicalCommunicator>(options, ranks_per_host, store, deadline);
}

}  // namespace lockstep
