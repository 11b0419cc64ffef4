# SPDX-License-Identifier: Apache-2.0 OR MIT
# After the command: a domain of a plan: checked, applied, its program run and supervised, released.
owners=/sys/devices/virtual/misc/rampart-detach/owners
echo 'owner:x:1000:1000::/:/bin/sh' >/etc/passwd
echo 'other:x:1001:1000::/:/bin/sh' >>/etc/passwd
echo 'users:x:1000:' >/etc/group
as() { start-stop-daemon -S -c "$1:users" -x /control_loop -- "$2" "$3" 2>&1; }
# Reports the exit code and the output of a command: exits NAME CODE TEXT COMMAND...
exits() {
    name=$1 code=$2 text=$3
    shift 3
    output=$("$@" 2>&1)
    is "$name" $? "$code"
    [ -z "$text" ] || has "$name" "$output" "$text"
}
mount -t cgroup2 none /sys/fs/cgroup
cat >/plan.toml <<END
[machine]
housekeeping = "0-1"
[[domain]]
name = "loop"
kind = "detached"
cpus = "2-3"
owner = 1000
run = ["/control_loop", "3", "1000"]
END
exits a_user_takes_no_cpu_before_the_plan 1 '' as owner 3 0
exits the_plan_is_checked 0 '' /rampart plan check /plan.toml
exits the_plan_is_applied 0 'detached (taken from Linux)' /rampart apply /plan.toml
is the_plan_gives_its_cpus_to_the_owner "$(cat $owners)" '2:1000 3:1000'
# Twice within the second in which an owner takes a CPU once.
exits the_owner_detaches_without_root 0 '' as owner 3 0
exits the_owner_detaches_without_root 0 '' as owner 3 0
wait_for $taken ''
exits the_owner_takes_no_other_cpu 1 'error: cannot take CPU 1: Operation not permitted' as owner 1 0
exits another_user_takes_no_cpu_of_the_owner 1 'error: cannot take CPU 3: Permission denied' as other 3 0
echo '3:1001' >/tmp/owners
refused an_owner_does_not_write_owners \
    start-stop-daemon -S -c owner:users -x /bin/dd -- if=/tmp/owners of=$owners
for wrong in 3 3:x 3:-1 99:1000 3:4294967295; do
    refused wrong_owners_are_refused sh -c "echo $wrong >$owners"
done
exits the_list_names_the_domain 0 'detached  2-3   detached (taken from Linux)' /rampart run --list
exits a_program_of_the_domain_detaches 0 '' /rampart run loop -- /control_loop 3 1
wait_for $taken ''
exits a_program_of_the_domain_detaches_to_one_cpu 0 '' /rampart run loop --cpus 2 -- /control_loop -1 1
wait_for $taken ''
has no_program_is_moved_to_the_domain "$(/rampart move --to loop 1 2>&1)" 'rampart run loop -- PROGRAM'
/rampart up loop
is the_domain_is_up $? 0
wait_for $running 3
has the_list_names_the_program_of_the_domain "$(/rampart detach | cat)" 'running  control_loop ('
exits the_status_has_no_drift 0 '' /rampart status
supervisor=$(pidof rampart)
kill -9 $supervisor
for _ in $(seq 600); do
    [ -e "/proc/${supervisor%% *}/exe" ] || break
    sleep 0.1
done
is the_loop_survives_its_supervisor "$(cat $running)" 3
kill -9 $(pidof control_loop)
wait_for $taken ''
is a_killed_loop_of_the_domain_gives_its_cpu_back "$(cat $taken)" ''
/rampart up loop
is the_domain_is_up_again $? 0
wait_for $running 3
refused the_plan_is_not_released_while_its_program_runs /rampart release
exits the_domain_is_down 0 '' /rampart down
wait_for $taken ''
exits the_plan_is_released 0 '' /rampart release
is the_release_takes_the_cpus_from_the_owner "$(cat $owners)" none
exits a_user_takes_no_cpu_after_the_release 1 '' as owner 3 0
