#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/cli/command_line_names.h"

namespace lockstep {

struct Selection;
struct SweepOptions;
struct VerifyOptions;

// What the paths of a command line are.
enum class Reads {
  anything,    // of a form: whatever they are
  programs,    // some of them scenarios of programs, or folders with such
  folders,     // runs that were kept, or what is not there
  files,       // not folders
  recordings,  // all of scripts/lockstep_record.py
};

// A verb that the core does without: a folder of sim/tools, which includes what it needs of the
// core; the core knows it by this alone. sim/program has the table of them.
struct Tool {
  const char* verb;
  void (*add)(CLI::App& app, std::function<int()>* action);

  // Which options its invocations take, as of sim/program/forms.h. Those with a mode come first.
  struct Form {
    const char *what, *mode;
    std::vector<const char*> options;  // lists of names
    Reads reads = Reads::anything;
  };
  std::vector<Form> forms;
  struct SilentOption {
    const char *option, *why;
  };
  std::vector<SilentOption> silent = {};  // that no result shows

  // Of what its --json writes; without a flag: `lockstep schema` has none.
  struct Schema {
    const char *flag = nullptr, *what = nullptr;  // "--explore", "Of what explore --json writes"
    const char* (*text)() = nullptr;
  };
  Schema schema = {};

  struct MadeSchema {
    const char *flag, *what;
    std::string (*text)();
  };
  std::vector<MadeSchema> further_schemas = {};

  // Scenario files of this tool's own, which verbs of the core take as well as theirs.
  struct Scenarios {
    bool (*has)(const std::string& path) = nullptr;          // is one, or a folder with one
    int (*execute)(const VerifyOptions& options) = nullptr;  // verify and run
    int (*sweep)(const SweepOptions& options) = nullptr;
    int (*check)(const Selection& selection) = nullptr;
    int (*list)(const Selection& selection) = nullptr;
  };
  Scenarios scenarios = {};

  // Whether a file or folder that `analyze` was given is this verb's.
  bool (*reads)(const std::string& path) = nullptr;
};

}  // namespace lockstep
