#include "sim/launch/process_stat.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(ProcessStat, WhatAProcessHasComputedIsKnown) {
  volatile double sum = 0;
  const double before = read_process_stat(::getpid()).cpu_seconds;
  while (read_process_stat(::getpid()).cpu_seconds < before + 0.05)
    for (int i = 0; i < 100'000; ++i) sum = sum + i;
  EXPECT_GT(read_process_stat(::getpid()).cpu_seconds, before);
  EXPECT_EQ(read_process_stat(-1).cpu_seconds, 0);
}

TEST(ProcessStat, TellsStateAndParent) {
  const ProcessStat own = read_process_stat(::getpid());
  EXPECT_EQ(own.state, 'R');
  EXPECT_EQ(own.parent, ::getppid());
  EXPECT_EQ(read_process_stat(-1).state, 0);
  EXPECT_EQ(read_process_stat(-1).status, -1);
}

}  // namespace
}  // namespace lockstep
