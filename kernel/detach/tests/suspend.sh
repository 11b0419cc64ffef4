# SPDX-License-Identifier: Apache-2.0 OR MIT
# A suspension that resumes by itself, as far as the machine can: with all CPUs but one offline (S3), or with its devices.
# The test programs then take CPUs as ever.
if grep -q deep /sys/power/mem_sleep; then
    echo processors >/sys/power/pm_test
    succeeds the_machine_is_suspended_and_resumed sh -c 'echo mem >/sys/power/state'
else
    echo devices >/sys/power/pm_test
    succeeds the_machine_is_suspended_and_resumed sh -c 'echo freeze >/sys/power/state'
fi
echo none >/sys/power/pm_test
