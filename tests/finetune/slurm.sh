#!/usr/bin/env bash
# slurm.sh TIDE KILLED DOCS: runs the job script of DOCS/cluster.md on a Slurm of one machine, in a namespace. The job is stopped
# as before a time limit and submitted again. Needs Slurm (Debian: slurm-wlm, munge) and the right to start it.
. "$(dirname "$0")/machines.sh"

if [[ $1 != inside ]]; then
    [[ -e $(dirname "$1")/../core/coll/tide_mpi_openmpi.so ]] || skip "no Open MPI"
    need munged slurmctld slurmd sbatch srun scontrol scancel unshare ip
    enter_namespaces "$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")"
fi

tide=$2 killed=$3 docs=$4 work=$5
export PATH=$(dirname "$tide"):$PATH:/usr/sbin SLURM_CONF=$work/slurm.conf
cd "$work" || exit 1

# Waits up to about 30 s for a condition.
wait_for() { # command
    for ((i = 0; i < 300; i++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    return 1
}

node_is_idle() {
    scontrol show node node0 2>/dev/null | grep -q "State=IDLE "
}

start_slurm() {
    printf '%s\n' "127.0.0.1 localhost" "10.77.0.1 node0" >hosts && mount --bind hosts /etc/hosts &&
        hostname node0 && ip link set lo up && ip addr add 10.77.0.1/24 dev lo || return 1
    chmod 755 . && mkdir munge state spool &&
        (umask 077 && head -c 1024 /dev/urandom >munge/key) &&
        munged --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
            --log-file="$work/munge/log" --seed-file="$work/munge/seed" --num-threads=2 || return 1
    cat >slurm.conf <<END
ClusterName=tide
SlurmctldHost=node0
SlurmUser=$(id -un)
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0
NodeName=node0 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=node0 Default=YES State=UP
END
    slurmctld && slurmd && wait_for node_is_idle
}

start_slurm >start.out 2>&1 ||
    skip "Slurm does not start: $(cat start.out slurmd.log slurmctld.log 2>/dev/null | grep -iE "error|fatal" | head -n 1)"
srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no PMIx"

# A small model has the name in the script.
tide_make_case case -q --hidden 64 --layers 2 --heads 4 --kv-heads 2 --inner 128 --vocab 256 --seq-len 32 --rows 3000 || exit 1
ln -s case/model Qwen3-4B
ln -s case/rows.jsonl rows.jsonl
awk '/^```/ { inside = 0 } inside || /^#!\/bin\/sh$/ { inside = 1; print }' "$docs/cluster.md" >job.sh
threads=$(sed -n 's/^srun --mpi=pmix //; s/ tuned / threads --ranks 2 /; /^tide /p' job.sh)

submit() { # one machine of two processors, whatever the script asks for
    job=$(sbatch --parsable --nodes=1 --ntasks-per-node=2 --output=job.out job.sh)
}

job_field() { # name
    scontrol show job "$job" | grep -oE "\<$1=[^ ]*"
}

job_has_ended() {
    [[ $(job_field JobState) != JobState=@(PENDING|CONFIGURING|RUNNING|COMPLETING) ]]
}

# Meson limits the time.
wait_for_job() {
    until job_has_ended; do sleep 0.1; done
}

explain="job.out slurmd.log"
echo "1..2"

# The first job waits after its checkpoint for the signal (kill_point.c), so it cannot end before.
stopped() {
    mkdir waiting && printf '#!/bin/sh\nexec "%s" "$@"\n' "$killed" >waiting/tide && chmod +x waiting/tide || return 1
    [[ -n $threads ]] && grep -q "^#SBATCH .*--signal=USR1@" job.sh &&
        PATH=$work/waiting:$PATH TIDE_TEST_WAIT=1 submit || return 1
    until [[ -d tuned/checkpoint-100 ]] || job_has_ended; do sleep 0.05; done
    scancel --signal=USR1 "$job"
    wait_for_job
    [[ $(job_field ExitCode) == ExitCode=130:0 ]] && grep -q "has the complete state: --resume continues from there" job.out &&
        [[ ! -e tuned/model.safetensors ]]
}
stopped
tell 1 stopped $?

resumed() {
    submit && wait_for_job
    [[ $(job_field JobState) == JobState=COMPLETED ]] && grep -q "^tuned: " job.out && $threads >threads.out 2>&1 &&
        cmp threads/model.safetensors tuned/model.safetensors
}
resumed
tell 2 resumed_to_the_same_bytes $?
exit $failed
