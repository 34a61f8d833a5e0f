// Devices whose streams are late, and collectives that go over the host: every wait is needed. The
// streams of this process stay late.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "reducer/device/staged.h"
#include "scenarios/workloads/devices.h"

namespace lockstep {
namespace {

c10::Device late_device() {
  Scenario scenario;
  scenario.device = "fake";
  scenario.streams = "late";
  return rank_devices(scenario, 0, 0).at(0);
}

c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

at::Tensor ones_on(c10::Device device) { return at::ones({6}).to(device); }

bool is_all(const at::Tensor& tensor, double value) {
  return at::equal(on_host(tensor), at::full({6}, value));
}

TEST(LateStreams, OneStreamIsInOrder) {
  const at::Tensor x = ones_on(late_device());
  EXPECT_TRUE(is_all(x + x, 2));
  x.mul_(3);
  EXPECT_TRUE(is_all(x, 3));
}

TEST(LateStreams, AnotherStreamSeesWhatItHasWaitedFor) {
  const c10::Device device = late_device();
  const auto guard = guard_of(device);
  const at::Tensor x = ones_on(device);
  const c10::Stream other = guard.getStreamFromGlobalPool(device);
  {
    const c10::StreamGuard on(other);
    EXPECT_TRUE(at::isnan(on_host(x + 1)).all().item<bool>());
  }
  c10::Event made(device.type());
  made.record(guard.getStream(device));
  made.block(other);
  const c10::StreamGuard on(other);
  EXPECT_TRUE(is_all(x + 1, 2));
}

TEST(LateStreams, WhatIsWrittenOverAReadThatIsStillToComeIsLost) {
  const c10::Device device = late_device();
  const auto guard = guard_of(device);
  const at::Tensor x = ones_on(device);
  const c10::Stream other = guard.getStreamFromGlobalPool(device);
  c10::Event made(device.type()), read(device.type());
  made.record(guard.getStream(device));
  {
    const c10::StreamGuard on(other);
    made.block(other);
    const at::Tensor y = x + 1;
    read.record(other);
  }
  x.fill_(5);
  EXPECT_TRUE(at::isnan(on_host(x)).all().item<bool>());
  read.block(guard.getStream(device));
  x.fill_(5);
  EXPECT_TRUE(is_all(x, 5));
}

TEST(LateStreams, TheHostSeesACopyOnceItHasWaited) {
  const c10::Device device = late_device();
  const at::Tensor x = ones_on(device);
  at::Tensor host = at::zeros({6});
  host.copy_(x, true);
  EXPECT_TRUE(at::isnan(host).all().item<bool>());
  c10::Event copied(device.type());
  copied.record(guard_of(device).getStream(device));
  EXPECT_TRUE(copied.query());
  EXPECT_TRUE(at::equal(host, at::ones({6})));
  host.zero_();
  host.copy_(x);  // blocks
  EXPECT_TRUE(at::equal(host, at::ones({6})));
}

// The sum of a group of one is what was given.
bool survives(const StagingWaits& waits) {
  const c10::Device device = late_device();
  CommOptions alone;
  alone.algorithm = "rank_order";
  const auto group = make_staged(make_local_communicator(alone, make_local_hub(1)), waits);
  const at::Tensor x = ones_on(device) * 2;
  group->all_reduce(x, kNoDeadline)->wait();
  const bool whole = is_all(x + 1, 3);
  group->close(kNoDeadline);
  return whole;
}

TEST(Staged, EveryWaitIsNeeded) {
  EXPECT_TRUE(survives({}));
  EXPECT_FALSE(survives({.for_gradients = false}));
  EXPECT_FALSE(survives({.for_copies = false}));
  EXPECT_FALSE(survives({.for_results = false}));
}

TEST(Staged, TensorsOfTheHostKeepTheirPlaceInTheOrder) {
  const c10::Device device = late_device();
  CommOptions alone;
  alone.algorithm = "rank_order";
  const auto group = make_staged(make_local_communicator(alone, make_local_hub(1)));
  const at::Tensor x = ones_on(device), y = at::ones({6}), all = at::zeros({1, 6}).to(device);
  const CommWorkPtr first = group->all_reduce(x, kNoDeadline);
  const CommWorkPtr second = group->broadcast(y, 0, kNoDeadline);
  const CommWorkPtr third = group->all_gather(all, x, kNoDeadline);
  second->wait();
  EXPECT_TRUE(first->is_done());
  first->wait();
  third->wait();
  EXPECT_TRUE(is_all(all.view({6}), 1));
  EXPECT_TRUE(at::equal(y, at::ones({6})));
}

}  // namespace
}  // namespace lockstep
