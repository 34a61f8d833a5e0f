#include "reducer/c10d/c10d_adapters.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "scenarios/workloads/devices.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A work that ends when it is told to, as one on a device does.
class ToldWork : public c10d::Work {
 public:
  ToldWork() : Work(0, c10d::OpType::ALLREDUCE) {}
  bool isCompleted() override { return ended_; }
  void end(std::exception_ptr error = nullptr) {
    if (error) finish(error);
    ended_ = true;
  }

 private:
  std::atomic<bool> ended_{false};
};

// One rank of one, which doubles what it is to add up: on its device, and when it is told to.
class DoublingBackend : public C10dBackend {
 public:
  DoublingBackend() : C10dBackend(0, 1) {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    device = tensors[0].device();
    tensors[0].mul_(2);
    work = c10::make_intrusive<ToldWork>();
    if (ends_at_once) work->end();
    return work;
  }

  c10::intrusive_ptr<ToldWork> work;
  c10::Device device{c10::kCPU};
  bool ends_at_once = true;
};

struct Made {
  c10::intrusive_ptr<DoublingBackend> backend = c10::make_intrusive<DoublingBackend>();
  std::shared_ptr<std::atomic<int>> aborts = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<Communicator> on(c10::Device device) {
    return make_backend_communicator(backend, device, [aborts = aborts] { ++*aborts; });
  }
};

c10::Device fake() {
  Scenario scenario;
  scenario.world_size = 1;
  scenario.device = "fake";
  return rank_devices(scenario, 0, 0).front();
}

TEST(BackendCommunicator, TakesTensorsOfTheHostToItsDeviceAndBack) {
  Made made;
  const c10::Device device = fake();
  const auto communicator = made.on(device);
  const at::Tensor on_cpu = at::full({3}, 5.0);
  communicator->all_reduce(on_cpu, soon())->wait();
  EXPECT_TRUE(on_cpu.equal(at::full({3}, 10.0)));
  EXPECT_EQ(made.backend->device, device);
  const at::Tensor there = at::full({3}, 7.0).to(device);
  communicator->all_reduce(there, soon())->wait();
  EXPECT_TRUE(on_host(there).equal(at::full({3}, 14.0)));
  communicator->barrier(soon())->wait();
  EXPECT_EQ(made.backend->device, device);
}

TEST(BackendCommunicator, AWorkEndsWhenTheDeviceHasEndedIt) {
  Made made;
  made.backend->ends_at_once = false;
  const auto communicator = made.on(c10::kCPU);
  const at::Tensor tensor = at::ones({2});
  const CommWorkPtr work = communicator->all_reduce(tensor, soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(work->is_done());
  made.backend->work->end();
  work->wait();
  EXPECT_EQ(*made.aborts, 0);
}

TEST(BackendCommunicator, ADeadlineAbortsAndClosesIt) {
  Made made;
  made.backend->ends_at_once = false;
  const auto communicator = made.on(c10::kCPU);
  const at::Tensor tensor = at::ones({2});
  const CommWorkPtr work =
      communicator->all_reduce(tensor, deadline_after(std::chrono::milliseconds(20)));
  std::exception_ptr error;
  try {
    work->wait();
  } catch (const CommError&) {
    error = std::current_exception();
  }
  EXPECT_EQ(text_of(error), "timeout: all_reduce of 2 float32: the deadline has passed");
  EXPECT_EQ(*made.aborts, 1);
  EXPECT_THROW(communicator->all_reduce(tensor, soon()), CommError);
  communicator->close(soon());
  EXPECT_EQ(*made.aborts, 1);
}

TEST(BackendCommunicator, WhatTheDeviceReportsIsTheWorksError) {
  Made made;
  made.backend->ends_at_once = false;
  const auto communicator = made.on(c10::kCPU);
  const at::Tensor tensor = at::ones({2});
  const CommWorkPtr work = communicator->all_reduce(tensor, soon());
  made.backend->work->end(std::make_exception_ptr(std::runtime_error("unhandled system error")));
  try {
    work->wait();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommFailure::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("unhandled system error"));
  }
  EXPECT_EQ(*made.aborts, 1);
}

}  // namespace
}  // namespace lockstep
