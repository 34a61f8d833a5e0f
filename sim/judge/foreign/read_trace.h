#pragma once

#include <string>

#include "scenarios/base/error.h"
#include "sim/judge/foreign/pipeline_trace.h"

namespace lockstep {

// Reads a trace: an array of Chrome trace events, as it is or packed by gzip. Events of phase X
// are operations (name; pid: data-parallel rank; tid: a thread of a stage; ts, dur; args.step,
// args.seq_id, args.model_chunk), thread_name events tell the stage ("PP rank 3, ..."); others are
// skipped. Bad input names the event and the field. Read as a stream: memory grows with the
// operations kept, whatever else the file holds (limits in unpacked.h).
Expected<PipelineTrace> read_pipeline_trace(const std::string& path);

}  // namespace lockstep
