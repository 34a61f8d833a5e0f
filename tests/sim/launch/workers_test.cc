#include <sys/wait.h>

#include <system_error>

#include "sim/launch/workers.h"
#include "tests/sim/launch/launch_fixture.h"
#include "tests/sim/launch/no_more_files.h"

namespace lockstep {
namespace {

class WorkersTest : public LaunchTest {
 protected:
  std::shared_ptr<Worker> start(Workers& workers, const std::string& behaviour) {
    const std::string dir = run_dir_of(dir_, 0);
    make_dir(dir);
    write_file(plan_path(dir), to_text(make(behaviour, 1)));
    // Nobody answers it: it waits for its store until it is ended.
    return workers.start({"rank", "", 0, dir}, 1, [](const Channel::Message&) {});
  }
  void wait_for_end(const Worker& worker) {
    const Deadline limit = deadline_after(std::chrono::seconds(10));
    while (!worker.ended && Clock::now() < limit) {
      loop_.wait(std::chrono::milliseconds(10));
      workers_.tick(Clock::now());
    }
    ASSERT_TRUE(worker.ended);
  }

  EventLoop loop_;
  Workers workers_{loop_, {options_.worker_program, options_.out_dir, false}};
};

TEST_F(WorkersTest, AnEndAskedForBeforeTheStartComesAtTheStart) {
  const auto worker = start(workers_, "good");
  EXPECT_EQ(worker->pid, 0);
  workers_.end(*worker, std::chrono::minutes(1));
  wait_for_end(*worker);
  EXPECT_EQ(WTERMSIG(worker->status), SIGTERM);
  EXPECT_TRUE(worker->by_launcher);
}

TEST_F(WorkersTest, ASecondEndCanOnlyMakeItSooner) {
  const auto worker = start(workers_, "good");
  workers_.end(*worker, std::chrono::milliseconds(0));
  workers_.end(*worker, std::chrono::minutes(1));
  wait_for_end(*worker);
  EXPECT_EQ(WTERMSIG(worker->status), SIGKILL);
}

TEST_F(WorkersTest, AWorkerThatCouldNotBeEndedEndsTheRun) {
  start(workers_, "good");
  const auto wait_at_the_limit = [&] {
    const NoMoreFiles limit;
    const Deadline patience = deadline_after(std::chrono::seconds(10));
    while (Clock::now() < patience) loop_.wait(std::chrono::milliseconds(10));
  };
  EXPECT_THROW(wait_at_the_limit(), std::system_error);
}

}  // namespace

}  // namespace lockstep
