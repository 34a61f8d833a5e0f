#pragma once

#include "sim/judge/timeline.h"
#include "sim/report/svg/gantt.h"
#include "sim/report/timeline_svg.h"

namespace lockstep {

// A phase of steps: load, forward, backward, wait, optimizer.
bool is_drawn(Phase phase);

bool entered_by_all(const Collective& b);

// Rows are ranks, with a track of their phases and one of their collectives (timeline_svg()).
svg::Gantt step_chart(const Timeline& timeline, const TimelinePicture& picture, int64_t step);

}  // namespace lockstep
