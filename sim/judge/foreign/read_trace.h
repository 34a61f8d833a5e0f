#pragma once

#include <string>

#include "scenarios/base/error.h"
#include "sim/judge/foreign/pipeline_trace.h"

namespace lockstep {

// Reads a trace: an array of Chrome trace events, as it is or packed by gzip. Events of phase X
// are operations (name; pid: data-parallel rank; tid: a thread of a stage; ts, dur; args.step,
// args.seq_id, args.model_chunk), thread_name events tell the stage ("PP rank 3, ..."); others are
// skipped. Bad input names the event and the field.
Expected<PipelineTrace> read_pipeline_trace(const std::string& path);

// The same from its text; errors name `path`.
Expected<PipelineTrace> parse_pipeline_trace(const std::string& text, const std::string& path);

// A trace of more is refused: it would not fit into the memory of a small machine.
inline constexpr size_t kTraceBytesMost = size_t{1} << 31;

}  // namespace lockstep
