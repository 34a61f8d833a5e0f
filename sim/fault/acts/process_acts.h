#pragma once

#include "sim/fault/acts/schedule.h"

namespace lockstep {

// What a fault does to the process that calls it.

// Sleeps: no core is busy. Interrupted by nothing but a deadly signal.
void pause_for(double duration_ms);

// Ends, stops or confuses this process as the fault's kind says; returns where it goes on: from a
// stop that is over, a pause, or a reset of its connections. Kinds that act elsewhere do nothing.
// Throws std::runtime_error (exception) and std::bad_alloc (out_of_memory). Any thread.
void act_out(const Act& act);

// SIGSTOP to this process; SIGCONT after duration_ms, sent by a process forked for it, which dies
// with this one. 0: nobody continues it.
void stop_for(double duration_ms);

// Shuts down every TCP connection of this process, as a network that resets them.
void reset_connections();

}  // namespace lockstep
