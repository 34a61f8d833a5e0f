#include <atomic>
#include <mutex>

#include "reducer/comm/closing.h"
#include "reducer/comm/collective.h"
#include "reducer/comm/comm_thread.h"
#include "reducer/comm/deadline_timer.h"
#include "reducer/comm/pending_work.h"
#include "reducer/gloo/gloo_collectives.h"
#include "reducer/gloo/gloo_context.h"
#include "reducer/gloo/peer_names.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

// Gloo ends an operation itself at its deadline, wait by wait; what it lets slip ends a little
// later, by force.
constexpr std::chrono::milliseconds kSlack{50};

bool is_old_style(const std::string& algorithm) {
  return algorithm == "halving_doubling" || algorithm == "ring_chunked";
}

class GlooCommunicator : public CollectiveCommunicator {
 public:
  GlooCommunicator(const CommOptions& options, std::shared_ptr<Store> store, Deadline deadline)
      : CollectiveCommunicator(options.rank, options.world_size),
        options_(options),
        slack_(is_old_style(options.algorithm) ? std::chrono::milliseconds(0) : kSlack),
        store_(std::move(store)) {
    if (options.world_size == 1) return;
    context_ = connect_gloo(options, store_, deadline);
    publish_addresses(*context_, *store_, options_.prefix);
    collectives_ = std::make_unique<GlooCollectives>(context_, options.algorithm);
    thread_ = std::make_unique<CommThread>();
  }

  ~GlooCommunicator() override {
    if (context_ != nullptr && !said_closed_) close_without_waiting(*store_, options_.prefix);
    shut_down();
  }

  void close(Deadline deadline) noexcept override {
    if (std::exchange(said_closed_, true)) return;
    if (context_ != nullptr) {
      // After a failure nobody waits; before one, what is queued is let through first.
      if (!failed_ && !drained(*thread_, deadline)) failed_ = true;
      if (!failed_) {
        wait_until_all_close(*store_, options_.prefix, world_size(), deadline);
      } else {
        close_without_waiting(*store_, options_.prefix);
      }
    }
    shut_down();
  }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    const std::string what = describe(call);
    if (failed_ || said_closed_) {
      throw CommError(CommFailure::closed, what + ": the communicator is closed");
    }
    auto work = std::make_shared<PendingWork>(what, call.deadline);
    if (context_ == nullptr) {
      run_alone(call);
      work->complete();
    } else {
      ++outstanding_;
      thread_->post([this, work, call = std::move(call)] {
        run(call, *work);
        --outstanding_;
      });
    }
    return work;
  }

 private:
  void run(const CollectiveCall& call, PendingWork& work) {
    if (failed_) {
      work.complete(comm_error(CommFailure::closed, work.what(), "an earlier collective failed"));
      return;
    }
    auto aborted = std::make_shared<std::atomic<bool>>(false);
    const Deadline forced = call.deadline == kNoDeadline ? kNoDeadline : call.deadline + slack_;
    const auto id = timer_.at(forced, [this, aborted] {
      *aborted = true;
      abort_gloo(*context_);
    });
    std::exception_ptr error;
    try {
      collectives_->run(call);
    } catch (const CommError& refused) {
      error = comm_error(work.what(), refused);
    } catch (const std::exception& caught) {
      error = std::make_exception_ptr(
          naming_peer(gloo_error(work.what(), caught, *aborted), *context_, *store_, options_));
    }
    timer_.cancel(id);
    if (error) failed_ = true;
    work.complete(error);
  }

  // Whatever is still queued ends as closed; what is under way is cut short.
  void shut_down() noexcept {
    said_closed_ = true;
    if (context_ == nullptr) return;
    failed_ = true;
    if (outstanding_ > 0) abort_gloo(*context_);
    thread_.reset();
    timer_.stop();
    collectives_.reset();
    context_.reset();
  }

  const CommOptions options_;
  const std::chrono::milliseconds slack_;
  const std::shared_ptr<Store> store_;
  std::atomic<bool> failed_{false};
  bool said_closed_ = false;
  std::atomic<int64_t> outstanding_{0};
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<GlooCollectives> collectives_;
  DeadlineTimer timer_;
  std::unique_ptr<CommThread> thread_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     Deadline deadline) {
  LOCKSTEP_CHECK(options.algorithm == "ring" || options.algorithm == "bcube" ||
                     is_old_style(options.algorithm),
                 "Gloo does not have the algorithm " + options.algorithm);
  return std::make_unique<GlooCommunicator>(options, std::move(store), deadline);
}

}  // namespace lockstep
