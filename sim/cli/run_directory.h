#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/launch/executor.h"

namespace lockstep {

// Where the evidence of one invocation lies. Locked while it is in use, so that another invocation
// does not take it away.
class RunDirectory {
 public:
  // --out: made with its parents if absent (0700); numbered runs of an earlier invocation in it are
  // removed, nothing else is. Bad input if it is no directory or cannot be written to.
  static Expected<RunDirectory> at(const std::string& path);
  // The next number below the first of these that can be used: $XDG_STATE_HOME/lockstep/runs,
  // ~/.local/state/lockstep/runs, /tmp/lockstep-UID/runs.
  static Expected<RunDirectory> numbered();

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  // Leaves the verdict for prune() to see.
  void note_verdict(Verdict verdict) const;

 private:
  RunDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  std::string path_;
  int lock_fd_;
};

// Where states lie, in the order in which they are tried: $XDG_STATE_HOME/lockstep,
// ~/.local/state/lockstep, /tmp/lockstep-UID.
std::vector<std::string> state_folders();
// Makes `path` and what is above it; true if it is a directory of ours that nobody else reads.
bool make_private_folder(const std::string& path);

// Keeps the newest `keep` numbered directories of `runs`; of older ones those that passed go
// first. Directories in use stay.
void prune(const std::string& runs, size_t keep);

inline constexpr size_t kRunsKept = 20;

// Folders that verify and run left, with --keep or of a run not as expected.

// Absolute and without a slash at its end.
std::string whole_path(const std::string& folder);
// `folder` itself, or the numbered ones of an invocation in it, in their order. Absolute.
std::vector<std::string> run_folders(const std::string& folder);
// The error of a folder that cannot be taken.
InputError refused_folder(const std::string& folder, const std::string& why);
Expected<RunOutcome> read_run_folder(const std::string& folder);

}  // namespace lockstep
