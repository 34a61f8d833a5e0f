#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/timeline.h"
#include "sim/report/fault_marks.h"
#include "sim/report/svg/gantt.h"

namespace lockstep {

// What a timeline's picture says besides the timeline, which knows nothing of faults.
struct TimelinePicture {
  std::string name;             // of the run
  std::optional<int64_t> step;  // to draw, one of drawable_steps(); else typical_step()
  std::vector<FaultMark> faults;
  std::vector<std::string> notes;  // what made it, and where
};

// Steps of which any rank recorded a phase, ascending: also those that nothing is concluded from.
std::vector<int64_t> drawable_steps(const Timeline& timeline);

// Of the steps that metrics are made of the one of median length (mean over ranks; of two in the
// middle the shorter one); where there is none, the last whole one, or else the last.
std::optional<int64_t> typical_step(const Timeline& timeline);

// One step, rank by rank: what it computed or waited for, and its collectives, each from arrival to
// end; below it how far apart ranks arrived at the collectives of all measured steps. At most 16
// ranks and 40 collectives are drawn, the late ones and the long ones first, and the notes say so.
std::string timeline_svg(const Timeline& timeline, const TimelinePicture& picture);

// A phase of steps: load, forward, backward, wait, optimizer.
bool is_drawn(Phase phase);

bool entered_by_all(const Collective& b);

// Rows are ranks, with a track of their phases and one of their collectives (timeline_svg()).
svg::Gantt step_chart(const Timeline& timeline, const TimelinePicture& picture, int64_t step);

}  // namespace lockstep
