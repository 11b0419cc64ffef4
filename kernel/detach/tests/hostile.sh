# SPDX-License-Identifier: Apache-2.0 OR MIT
# Hostile threads, what ends the holder of a CPU, and the registers that Linux has of the CPU. `guests` and `registers` are
# yes, no, or the reason why there are none.
if [ -e /kvm-amd.ko ] && grep -q svm /proc/cpuinfo; then
    for module in irqbypass kvm ccp kvm-amd; do insmod /$module.ko; done
fi
/detach-test all 2
case $guests in
yes) /detach-test guest 2 ;;
no) ;;
*) for name in a_guest_of_kvm_in_the_process a_thread_attaches_to_run_a_guest; do report $name left-out "$guests"; done ;;
esac
case $registers in
yes) insmod /msr.ko && /detach-test restored 2 ;;
no) ;;
*)
    for name in registers_can_be_read a_cpu_with_read_registers_serves linux_has_no_access_meanwhile \
        linux_has_access_again registers_are_restored; do
        report $name left-out "$registers"
    done
    ;;
esac
dmesg -c | sed 's/^/log /'
/detach-test ends 2
# Linux prints a stack of calls when it ends a process because there is no memory.
dmesg -c | sed '/invoked oom-killer/,/Killed process/d' | sed 's/^/log /'
