#!/bin/sh
# The guest's first process: brings the NIC up and leaves a root shell on the second serial port.
# Busybox's shell takes its own `ip` before any in the path.
export PATH=/sbin:/bin LD_LIBRARY_PATH=/lib
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /run /tmp
for word in $(cat /proc/cmdline); do
    case $word in v4=* | v6=* | module=*) eval "$word" ;; esac
done
for name in $(cat /modules/"$module"); do insmod /modules/"$name".ko; done
for try in $(seq 50); do
    [ -e /sys/class/net/eth0 ] && break
    sleep 0.1
done
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_ra
/sbin/ip link set lo up
/sbin/ip addr add "$v4"/24 dev eth0
/sbin/ip addr add "$v6"/64 dev eth0 nodad
/sbin/ip link set eth0 up
# Held open: what arrives while nobody has it open is lost, and so are its settings.
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
echo "guest $(uname -r) is up"
while :; do
    # Its output is a pipe, so that it prompts nobody and echoes nothing.
    setsid sh </dev/ttyS1 2>&1 | cat >/dev/ttyS1
done
