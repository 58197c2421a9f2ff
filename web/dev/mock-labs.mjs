/** Labs of the mock: one of each kind that the page must show well. The real ones are in /labs. */

const t = (en, zh) => ({ en, zh });

const repair = [
  {
    n: 1,
    title: t('Find out why the service does not start', '找出服务无法启动的原因'),
    checkable: true,
    auto: false,
    text: t(
      'The machine runs a small note keeper, `notes.service`. It ought to answer on port 8080, but it does not even start.\n\nAsk systemd what it thinks of the unit:\n\n```\nsystemctl status notes.service\njournalctl -u notes.service -n 20 --no-pager\n```\n\nThe unit file names a program that does not exist. **Correct the path** in the unit, then tell systemd to read it again.\n\n> A unit file that you changed is not used before `systemctl daemon-reload`.',
      '这台机器上有一个小小的记事服务 `notes.service`。它本应在 8080 端口应答，现在却连启动都做不到。\n\n先问问 systemd 它对这个单元怎么看：\n\n```\nsystemctl status notes.service\njournalctl -u notes.service -n 20 --no-pager\n```\n\n单元文件里写了一个不存在的程序。**改正路径**，再让 systemd 重新读取它。\n\n> 修改过的单元文件在 `systemctl daemon-reload` 之前不会生效。',
    ),
    hint: t('Compare `ExecStart=` with what `ls /usr/local/bin` shows. `systemctl cat notes` prints the unit.', '把 `ExecStart=` 和 `ls /usr/local/bin` 的结果比较一下。`systemctl cat notes` 可以打印单元文件。'),
  },
  {
    n: 2,
    title: t('Give the service its data directory', '让服务拥有它的数据目录'),
    checkable: true,
    auto: true,
    text: t('It starts now, and stops at once: the user `notes` may not write to `/var/lib/notes`.\n\n| path | owner | mode |\n|---|---|---|\n| `/var/lib/notes` | `notes` | `0750` |', '现在它能启动了，却马上停止：用户 `notes` 无权写入 `/var/lib/notes`。\n\n| 路径 | 属主 | 权限 |\n|---|---|---|\n| `/var/lib/notes` | `notes` | `0750` |'),
    hint: t('`chown` and `chmod`.', '`chown` 和 `chmod`。'),
  },
  {
    n: 3,
    title: t('Start it after what it needs', '让它在依赖之后启动'),
    checkable: true,
    auto: false,
    text: t('The note keeper reads a file that `notes-seed.service` writes. Name that dependency in the unit: *both* that it is needed and that it comes first.', '记事服务要读取 `notes-seed.service` 写出的文件。请在单元里写明这个依赖：*既要*需要它，*也要*在它之后启动。'),
    hint: null,
  },
  {
    n: 4,
    title: t('Make it survive a reboot', '让它在重启之后依然可用'),
    checkable: true,
    auto: false,
    text: t('Make the service start at boot, then reboot the machine. The terminal comes back by itself.', '让服务开机自启，然后重启机器。终端会自己恢复。'),
    hint: t('`systemctl enable`.', '`systemctl enable`。'),
  },
];

const plain = (count) =>
  Array.from({ length: count }, (_, i) => ({
    n: i + 1,
    title: t(`Step ${i + 1}`, `第 ${i + 1} 步`),
    checkable: i > 0,
    auto: false,
    text: t('Read this and go on.', '读完继续。'),
    hint: null,
  }));

const lab = (id, title, summary, more) => ({
  id,
  title,
  summary,
  difficulty: 'beginner',
  runtime: 'vm',
  supported: true,
  unsupported: null,
  life_s: 3600,
  idle_s: 1800,
  extend_step_s: 900,
  extend_max_s: 3600,
  machines: ['main'],
  steps: repair,
  ...more,
});

export const labs = [
  lab('systemd-repair', t('Repair a service', '修复一个服务'), t('A systemd service does not start. Find out why, mend it in four steps, and make it survive a reboot.', '一个 systemd 服务无法启动。找出原因，分四步修好它，并让它在重启之后依然可用。')),
  lab('disk-rescue', t('Rescue a full disk', '拯救写满的磁盘'), t('The root disk is full. Partition a second one, make a file system, move the data, and mount it at boot.', '根磁盘已经写满。给第二块磁盘分区、建立文件系统、迁移数据，并在开机时挂载。'), { difficulty: 'intermediate', mock: { disk: 'container', disk_reason: 'golden_importing' } }),
  lab('broken-prepare', t('A lab that is broken', '一个坏掉的实验'), t('Its set-up script fails; for looking at that page.', '它的布置脚本会失败，用来查看相应的页面。'), { mock: { fail: 'prepare_failed' } }),
  lab('slow-boot', t('A slow machine', '一台很慢的机器'), t('It boots for a minute.', '它要启动一分钟。'), { difficulty: 'advanced', mock: { pace: 12 } }),
  lab('two-machines', t('Two machines that must talk', '两台要互相通信的机器'), t('A client and a server; the network between them is not what it seems.', '一台客户机和一台服务器；它们之间的网络并不像看上去那样。'), { difficulty: 'advanced', machines: ['client', 'server'], steps: plain(6) }),
  lab('full-house', t('No place left', '没有位置'), t('Starting it is refused: all places are taken.', '启动会被拒绝：位置已满。'), { mock: { refuse: 'capacity' } }),
  lab('containers', t('Containers from the inside', '从内部看容器'), t('Namespaces and cgroups by hand.', '亲手操作命名空间和 cgroup。'), { runtime: 'pod', supported: false, unsupported: 'This lab runs in a container (runtime: pod), which this installation cannot start yet.' }),
];
