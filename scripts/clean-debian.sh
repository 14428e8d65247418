# For scripts/fresh-test and scripts/deb-test: a clean Debian 12 below build/fresh, made with debootstrap. Needs root, a network and
# 4 GB of disk. Sourced; afterwards `inside COMMAND...` runs a command in it. `rm -rf build/fresh` starts over.
[ "$(id -u)" -eq 0 ] || { echo "$(basename "$0"): needs root for debootstrap and chroot; run: sudo make $(basename "$0")" >&2; exit 1; }
command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap

system=$PWD/build/fresh/system
if [ ! -e "build/fresh/base.tar" ]; then
  rm -rf "$system" && mkdir -p "$system"
  debootstrap --variant=minbase --include=git,make,ca-certificates bookworm "$system"
  tar -C "$system" --one-file-system -cf build/fresh/base.tar .
else
  echo "$(basename "$0"): starting over from the clean base"
  rm -rf "$system" && mkdir -p "$system" && tar -C "$system" -xf build/fresh/base.tar
fi
# The clean system uses the network configuration of this one.
cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
cp /etc/apt/sources.list.d/*.sources "$system/etc/apt/sources.list.d/" 2>/dev/null && rm -f "$system/etc/apt/sources.list"
cp /etc/apt/apt.conf.d/*proxy* "$system/etc/apt/apt.conf.d/" 2>/dev/null || true
mount -t proc proc "$system/proc"
mount -t sysfs sysfs "$system/sys"  # OpenCL's processor device reads the machine's layout there
mkdir -p "$system/dev/pts"
mount -t devpts devpts "$system/dev/pts"  # tests of what is drawn on a terminal
trap 'umount "$system/dev/pts" "$system/sys" "$system/proc"' EXIT
inside() { chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb LC_ALL=C.UTF-8 "$@"; }
