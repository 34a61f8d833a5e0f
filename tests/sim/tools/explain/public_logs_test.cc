#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// What jobs of strangers printed: numbers as their threads show them (of LlamaFactory#8261 and
// prime-rl#3186 those that the threads leave out are ours), in the form in which the
// program writes it. Whom a log proves guilty is written beside it; all others stay undecided.

std::string numbers(int64_t sequence, const std::string& operation, const std::string& sizes,
                    int64_t timeout_ms, int64_t ran_ms) {
  return "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
         std::to_string(sequence) + ", OpType=" + operation + sizes +
         ", Timeout(ms)=" + std::to_string(timeout_ms) + ") ran for " + std::to_string(ran_ms) +
         " milliseconds before timing out.\n";
}

std::string sizes(const std::string& in, const std::string& out) {
  return ", NumelIn=" + in + ", NumelOut=" + out;
}

// To 2.1: no rank before the line.
std::string old_watchdog(int64_t rank, int64_t line, const std::string& what) {
  return "[E ProcessGroupNCCL.cpp:" + std::to_string(line) + "] [Rank " + std::to_string(rank) +
         "] " + what;
}

std::string watchdog(int64_t rank, int64_t in_group, const std::string& what) {
  return "[rank" + std::to_string(rank) + "]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] " +
         "[Rank " + std::to_string(in_group) + "] " + what;
}

std::string progress(int64_t rank, const std::string& group, const std::string& word,
                     int64_t enqueued, int64_t completed) {
  return "[rank" + std::to_string(rank) + "]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:1785] " +
         "[" + group + "] " + word + "ast enqueued NCCL work: " + std::to_string(enqueued) +
         ", last completed NCCL work: " + std::to_string(completed) + ".\n";
}

std::string at_work(int64_t rank, const std::string& group, int64_t sequence, int64_t enqueued,
                    int64_t completed) {
  return progress(rank, group,
                  "Exception (either an error or timeout) detected by watchdog at work: " +
                      std::to_string(sequence) + ", l",
                  enqueued, completed);
}

std::string at_work_id(int64_t rank, const std::string& group, int64_t sequence, int64_t enqueued,
                       int64_t completed) {
  return "[rank" + std::to_string(rank) + "]:[E901 05:20:03.124073319 ProcessGroupNCCL.cpp:2271] " +
         "[" + group +
         "]  failure detected by watchdog at work sequence id: " + std::to_string(sequence) +
         " PG status: last enqueued work: " + std::to_string(enqueued) +
         ", last completed work: " + std::to_string(completed) + "\n";
}

std::string dump_signal(int64_t rank, const std::string& group, const std::string& from,
                        int64_t enqueued, int64_t completed) {
  return progress(rank, group,
                  "Received a dump signal due to a collective timeout from " + from +
                      " and we will try our best to dump the debug info. L",
                  enqueued, completed);
}

std::string default_group(int64_t rank) {
  return "PG ID 0 PG GUID 0(default_pg) Rank " + std::to_string(rank);
}

std::string table(const std::vector<std::vector<int64_t>>& others, std::vector<int64_t> root) {
  std::string text =
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nFailures:\n";
  if (others.empty()) text += "  <NO_OTHER_FAILURES>\n";
  int64_t number = 0;
  const auto part = [&](const std::vector<int64_t>& end) {
    text += "[" + std::to_string(number++) + "]:\n  time      : 2025-05-21_15:43:03\n" +
            "  host      : node\n  rank      : " + std::to_string(end[0]) +
            " (local_rank: " + std::to_string(end[0]) +
            ")\n  exitcode  : " + std::to_string(end[1]) +
            " (pid: 14750)\n  error_file: <N/A>\n  traceback : To enable traceback see: elastic\n";
  };
  for (const auto& other : others) part(other);
  text += "Root Cause (first observed failure):\n";
  part(root);
  return text;
}

std::string gloo(const std::string& what) {
  return "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    "
         "step()\n"
         "RuntimeError: [../third_party/gloo/gloo/transport/tcp/" +
         what + "\n";
}

std::string of_ranks(const std::vector<int64_t>& ranks,
                     const std::function<std::string(int64_t)>& line) {
  std::string text;
  for (const int64_t rank : ranks) text += line(rank);
  return text;
}

std::vector<PublicLog> watchdog_logs() {
  const auto at_808 = [](int64_t rank) {
    return watchdog(rank, rank,
                    numbers(808, "ALLREDUCE", sizes("9801523", "9801523"), 600000, 600020)) +
           at_work(rank, default_group(rank), 808, 811, 807);
  };
  const auto at_7753 = [](int64_t rank) {
    return watchdog(rank, rank,
                    numbers(7753, "_REDUCE_SCATTER_BASE", sizes("544997376", "68124672"), 600000,
                            600061)) +
           at_work(rank, "PG 1 Rank " + std::to_string(rank), 7753, 7755, 7752);
  };
  const auto at_1580 = [](int64_t rank) {
    return watchdog(rank, rank,
                    numbers(1580, "ALLREDUCE", sizes("466119168", "466119168"), 600000, 600060)) +
           at_work(rank, "PG 1 Rank " + std::to_string(rank), 1580, 1582, 1579);
  };
  const auto at_469508 = [](int64_t rank) {
    return old_watchdog(rank, 737, numbers(469508, "ALLREDUCE", "", 1800000, 1802212));
  };
  const auto at_2070 = [](int64_t rank) {
    return watchdog(rank, rank, numbers(2070, "REDUCE", sizes("1", "1"), 600000, 600034)) +
           at_work(rank, "PG 0 (default_pg) Rank " + std::to_string(rank), 2070,
                   rank == 3 ? 2082 : 2070, 2069);
  };
  return {
      {"pytorch/pytorch#152623",
       watchdog(0, 0, numbers(241, "ALLREDUCE", sizes("6", "6"), 600000, 600086)) +
           "\t     [7] finished collective #182, but didn't join collective #183 (count from 1)\n" +
           at_work_id(0, default_group(0), 241, 315, 183)},
      {"huggingface/diffusers#12422",
       "[rank1]:[E1002 18:16:40.662691402 ProcessGroupNCCL.cpp:756] [Rank 1] Work "
       "WorkNCCL(SeqNum=2521, OpType=ALLREDUCE" +
           sizes("160672064", "160672064") + ", Timeout(ms)=600000) timed out in blocking wait.\n"},
      {"OpenRLHF/OpenRLHF#621",
       "(RayWorkerWrapper pid=92234, ip=172.19.24.110) [rank1]:[E1224 13:23:05.483840160 "
       "ProcessGroupNCCL.cpp:542] [Rank 12] Collective WorkNCCL(SeqNum=1, OpType=BROADCAST) raised "
       "the following async exception: NCCL error: remote process exited\n"},
      {"KaiqiangXiong/CL-MVSNet#14",
       at_work_id(0, default_group(0), 716, 747, 715) +
           dump_signal(0, default_group(0), "this local rank", 747, 715)},
      {"XPixelGroup/BasicSR#737", of_ranks({1, 0, 2}, at_808)},
      {"hiyouga/LlamaFactory#6269", of_ranks({0, 4, 3, 2, 6}, at_7753)},
      {"hiyouga/LlamaFactory#7396", of_ranks({0, 4, 3, 2}, at_1580)},
      {"OFA-Sys/OFA#271", of_ranks({1, 3, 2, 6, 7, 5}, at_469508)},
      {"pytorch/pytorch#118369",
       old_watchdog(0, 458, numbers(96120, "ALLREDUCE", "", 1800000, 25624887)) +
           old_watchdog(0, 458, numbers(96117, "ALLREDUCE", "", 1800000, 25625613)) +
           old_watchdog(7, 458, numbers(64088, "ALLREDUCE", "", 1800000, 25625251))},
      {"NVIDIA/nccl#1409",
       watchdog(7, 7, numbers(80078, "BROADCAST", sizes("5056", "5056"), 600000, 600026)) +
           at_work(7, "PG 0 (default_pg) Rank 7", 80078, 80078, 80077) +
           watchdog(3, 3,
                    numbers(80078, "ALLREDUCE", sizes("2106881", "2106881"), 600000, 600013)) +
           at_work(3, "PG 0 (default_pg) Rank 3", 80078, 80078, 80077)},
      {"agiresearch/InstructGLM#3",
       old_watchdog(1, 821, numbers(49, "ALLREDUCE", "", 18000000, 18005607))},
      {"NVIDIA/Megatron-LM#1207",
       old_watchdog(0, 523, numbers(5, "ALLREDUCE", sizes("1", "1"), 600000, 600013))},
      {"NVIDIA/nccl#1504",
       watchdog(1, 1,
                numbers(1, "COALESCED", sizes("18446744073709551615", "18446744073709551615"),
                        1800000, 1800014)) +
           at_work(1, default_group(1), 1, 1, -1)},
      {"NVIDIA/nccl#1610",
       progress(12, "PG ID 13 PG GUID 143 Rank 0", "Timeout at NCCL work: 87, l", 87, 86)},
      {"mila-iqia/milabench#269", of_ranks({14, 12, 11, 15, 3}, at_2070)},
      {"MCG-NJU/MOTIP#52",
       watchdog(5, 5, numbers(93201, "BROADCAST", sizes("106240", "106240"), 600000, 600070)) +
           at_work(5, default_group(5), 93201, 93201, 93200)},
      {"modelscope/DiffSynth-Studio#458",
       watchdog(4, 4, numbers(610, "COALESCED", sizes("56320", "450560"), 600000, 600086)) +
           at_work(4, "PG ID 2 PG GUID 9 Rank 4", 610, 616, 609) +
           watchdog(6, 6, numbers(610, "COALESCED", sizes("76800", "614400"), 600000, 600087))},
      {"sgl-project/sglang#1693",
       "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 3 "
       "Rank 5] Process group watchdog thread terminated with exception: [Rank 5] " +
           numbers(9141, "_ALLGATHER_BASE", sizes("19008", "152064"), 600000, 600020)},
      {"arrival-ltd/catalyst-rl-tutorial#15",
       "  what():  [Rank 6] NCCL watchdog thread terminated with exception: [Rank 6] " +
           numbers(880, "BROADCAST", sizes("131137536", "131137536"), 1800000, 1800902)},
      {"vllm-project/vllm-omni#2928",
       dump_signal(1, default_group(1), "this local rank", 233659, 233659) +
           dump_signal(0, default_group(0), " rank 1", 233659, 233659)},
      {"OpenRLHF/OpenRLHF#1126",
       dump_signal(2, default_group(2), " rank 6", 460631, 460630) +
           watchdog(7, 7, numbers(460631, "ALLREDUCE", sizes("1", "1"), 600000, 600020)) +
           at_work_id(7, default_group(7), 460631, 460631, 460630)},
      {"huggingface/accelerate#3861",
       dump_signal(1, default_group(1), "this local rank", 22, 21) +
           dump_signal(2, default_group(2), "this local rank", 22, 21)},
      {"hiyouga/LlamaFactory#8261",
       watchdog(5, 5, numbers(7, "ALLGATHER", sizes("1", "8"), 600000, 600018)) +
           dump_signal(1, default_group(1), "this local rank", 6, 6) +
           dump_signal(6, default_group(6), "this local rank", 6, 6)},
      {"meta-pytorch/torchtune#2651",
       dump_signal(7, default_group(7), "this local rank", 9387, 9386) +
           dump_signal(6, default_group(6), "this local rank", 9387, 9386)},
      {"PrimeIntellect-ai/prime-rl#3186",
       dump_signal(0, default_group(0), " rank 13", 1261, 1259) +
           watchdog(13, 1, numbers(412, "ALLTOALL_BASE", sizes("1", "1"), 600000, 600010))},
      {"NVIDIA-NeMo/RL#2140",
       "(MegatronPolicyWorker[rank=31] pid=3264030, ip=10.1.101.236) " +
           dump_signal(31, default_group(31), " rank 107", 51, 51) +
           "(MegatronPolicyWorker[rank=97] pid=3421713, ip=10.1.2.206) " +
           watchdog(97, 6, numbers(1, "COALESCED", sizes("0", "0"), 600000, 651421))},
  };
}

std::vector<PublicLog> other_logs() {
  const std::string memory = "CUDA out of memory. Tried to allocate 4.35 GiB. GPU 3 has a total";
  return {
      {"pytorch/pytorch#75512", gloo("pair.cc:598] Connection closed by peer [18.25.6.30]:28048")},
      {"YOLOX#702", gloo("pair.cc:575] Connection closed by peer [127.0.1.1]:39827")},
      {"RVC-Project/Retrieval-based-Voice-Conversion-WebUI#1882",
       gloo("pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer")},
      {"PyTorch-BigGraph#152", gloo("pair.cc:575] Connection closed by peer [10.24.184.33]:16062")},
      {"NVIDIA/nccl#849",
       "RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms\n"},
      {"huggingface/picotron_tutorial#6", table({{6, -6}, {7, -6}}, {0, -6})},
      {"chrisknewman/tusas#149",
       "slurmstepd: error: Detected 1 oom_kill event in StepId=440575.0.\n"
       "srun: error: nid001277: tasks 1-3: Out Of Memory\nsrun: Terminating StepId=440575.0\n"
       "slurmstepd: error: *** STEP 440575.0 ON nid001277 CANCELLED AT 2023-12-05T07:16:01 ***\n"},
      {"modelscope/ms-swift#9443",
       "[rank1]: Traceback (most recent call last):\n[rank1]: RuntimeError: Detected mismatch "
       "between collectives on ranks. Rank 1 is running collective: "
       "CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE, TensorShape=[195812480]), but "
       "Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=3104, "
       "OpType=ALLREDUCE, TensorShape=[51123456])\n"},
      {"vllm-project/vllm#4108",
       "[E ProcessGroupNCCL.cpp:916] [Rank 0] NCCL watchdog thread terminated with exception: CUDA "
       "error: an illegal memory access was encountered\n"},
      {"lyu-yx/ACUMEN#4",
       "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal "
       "SIGKILL\n"},
      {"hpcaitech/ColossalAI#3514",
       "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 "
       "(pid: 812917) of binary: /usr/bin/python\n"},
      {"NVIDIA/nccl#1232",
       "node0:13571:13571 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by "
       "remote "
       "peer node2<42830>\n"},
      // The command is the node's last process's, not that of the one that was killed.
      {"deepspeedai/DeepSpeed#3232",
       "[2023-04-14 13:11:27,885] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python3', "
       "'-u', "
       "'main.py', '--local_rank=0'] exits with return code = -9\n"},
      // Who ended by itself, as the launcher or the rank says.
      {"lzhxmu/CPPO#6", table({}, {0, -9}), {0}},
      {"ZhehengJiangLancaster/AMVUR#2", table({}, {2, -9}), {2}},
      {"horovod/horovod#469",
       "mpirun noticed that process rank 7 with PID 0 on node HOSTNAME exited on signal 9 "
       "(Killed).\n",
       {7}},
      {"modelscope/ms-swift#6301",
       "[rank11]: Traceback (most recent call last):\n[rank11]:   File \"sdpa_attention.py\", line "
       "96\n[rank11]: torch.OutOfMemoryError: " +
           memory + "\n",
       {11}},
      {"vllm-project/vllm#6042",
       "[rank3]:[E ProcessGroupNCCL.cpp:1414] [PG 2 Rank 3] Process group watchdog thread "
       "terminated with exception: CUDA error: an illegal memory access was encountered\n" +
           watchdog(0, 0, numbers(11, "ALLREDUCE", sizes("1", "1"), 600000, 600017)),
       {3}},
  };
}

void expect_recognized(const std::vector<PublicLog>& logs) {
  for (const PublicLog& log : logs)
    EXPECT_FALSE(evidence_of(log.text).events.empty())
        << log.thread << ": nothing in it was recognized";
}

TEST(PublicLogs, WatchdogsOfThoseThatWaitedNameNobody) {
  expect_recognized(watchdog_logs());
  expect_as_written(watchdog_logs());
}

TEST(PublicLogs, OnlyWhoEndedByItselfIsNamed) {
  expect_recognized(other_logs());
  expect_as_written(other_logs());
}

TEST(PublicLogs, ThereAreThirtyOfThem) {
  EXPECT_GE(watchdog_logs().size() + other_logs().size(), 30U);
}

}  // namespace
}  // namespace lockstep
