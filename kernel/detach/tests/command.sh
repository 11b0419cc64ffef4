# SPDX-License-Identifier: Apache-2.0 OR MIT
# The command: lists, takes, gives, releases; and a program without privileges.
export RAMPART_STATE_DIR=/tmp/state
ulimit -l unlimited
mkdir /etc
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
echo 'nogroup:x:65534:' >/etc/group
has without_a_taken_cpu_the_list_is_empty "$(/rampart detach)" 'No CPU is taken.'
/rampart detach take 2 -- /control_loop 2 1000 &
holder=$!
wait_for $running 2
# Without a terminal no line is broken.
has the_list_names_the_program_that_runs "$(/rampart detach | cat)" 'running  control_loop ('
json=$(/rampart detach --json | tr -d ' \n')
has the_document_names_state_and_holder "$json" '[{"cpu":2,"state":"running","holders":[{"process":'
has the_document_counts_no_interrupt "$json" ',"interrupts":0}}]'
has a_taken_cpu_is_not_taken_twice "$(/rampart detach take 2 -- /bin/true 2>&1)" 'CPU 2: cannot be taken: '
has the_command_gives_a_cpu_back "$(/rampart detach give 2 2>&1)" 'CPU 2 is given back to Linux'
wait_for $taken ''
succeeds the_loop_continues_under_linux kill -0 $holder
kill -9 $holder
/rampart detach take 2 -- /control_loop 2 1000 &
holder=$!
wait_for $running 2
has a_release_gives_a_cpu_back "$(/rampart release 2>&1)" '/sys/devices/system/cpu/cpu2: given back by process'
wait_for $taken ''
succeeds the_loop_continues_after_the_release kill -0 $holder
kill -9 $holder
succeeds a_program_without_privileges_detaches \
    /rampart detach take 2 -- start-stop-daemon -S -c nobody:nogroup -x /control_loop -- -1 1
wait_for $taken ''
/rampart release
is no_journal_is_left "$(ls /tmp/state/detached/journal)" ''
