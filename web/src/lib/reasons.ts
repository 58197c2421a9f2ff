import type { Reason } from './api.ts';

export type ReasonWords = { title: string; text: string; next: string };

/** Why a session ended, in plain words: what happened, and what to do next. */
export const reasons: Record<'en' | 'zh', Record<Reason, ReasonWords>> = {
  en: {
    user: { title: 'You ended this lab', text: 'You pressed End.', next: 'Start it again whenever you like: you get a fresh machine.' },
    expired: { title: 'The time was up', text: 'The machine reached the end of its life and was removed.', next: 'Start again for a fresh machine; add time before it runs out.' },
    idle: { title: 'The machine was not used', text: 'Nobody typed for a while, so the machine was given back.', next: 'Start again when you have time for it.' },
    admin: { title: 'Ended by staff', text: 'A teacher or an administrator ended this session.', next: 'Ask them if you do not know why; you can start again.' },
    provision_failed: { title: 'The machine could not be made', text: 'The cluster refused the machine or could not place it. This is not your fault.', next: 'Try again in a minute. If it happens again, show the cause below to your teacher.' },
    disk_timeout: { title: 'The disk did not come', text: 'The machine’s disk was not there in time. This is not your fault.', next: 'Try again in a few minutes. If it happens again, show the cause below to your teacher.' },
    boot_timeout: { title: 'The machine did not switch on', text: 'A host took the machine but did not bring it up in time. This is not your fault.', next: 'Try again. If it happens again, show the cause below to your teacher.' },
    agent_unreachable: { title: 'The machine did not answer', text: 'Linux was started, but its first answer did not come in time. This is not your fault.', next: 'Try again. If it happens again, tell your teacher: the lab or its image may be broken.' },
    prepare_failed: { title: 'The lab could not be set up', text: 'The lab’s own set-up script failed inside the machine. This is not your fault.', next: 'Show the log below to your teacher: the lab needs a repair. You can try again.' },
    prepare_timeout: { title: 'The set-up took too long', text: 'The lab’s own set-up script did not finish in time. This is not your fault.', next: 'Try again. If it happens again, show the log below to your teacher.' },
    vm_stopped: { title: 'The machine was switched off', text: 'The machine stopped by itself, for example after “poweroff”. A stopped machine is not started again.', next: 'Start again for a fresh machine. To restart Linux inside a lab, use “reboot”.' },
    vm_lost: { title: 'The machine was lost', text: 'The host that ran the machine lost it. What was in it is gone. This is not your fault.', next: 'Start again for a fresh machine.' },
  },
  zh: {
    user: { title: '你结束了这个实验', text: '你点了“结束”。', next: '随时可以重新开始：你会得到一台全新的机器。' },
    expired: { title: '时间到了', text: '机器的使用时间已用完，已被删除。', next: '重新开始会得到一台全新的机器；记得在用完之前延长时间。' },
    idle: { title: '机器长时间没有使用', text: '有一段时间没有人输入，机器已被收回。', next: '等你有时间的时候再重新开始。' },
    admin: { title: '被教师或管理员结束', text: '教师或管理员结束了这个会话。', next: '如果不清楚原因，请问一下他们；你可以重新开始。' },
    provision_failed: { title: '机器没能创建', text: '集群拒绝了这台机器，或者没有地方放它。这不是你的问题。', next: '请一分钟后再试。如果再次发生，请把下面的原因给老师看。' },
    disk_timeout: { title: '磁盘没有按时就绪', text: '机器的磁盘没有在规定时间内准备好。这不是你的问题。', next: '请几分钟后再试。如果再次发生，请把下面的原因给老师看。' },
    boot_timeout: { title: '机器没有按时开机', text: '主机接收了机器，但没有在规定时间内把它开起来。这不是你的问题。', next: '请再试一次。如果再次发生，请把下面的原因给老师看。' },
    agent_unreachable: { title: '机器没有应答', text: 'Linux 已经启动，但没有在规定时间内应答。这不是你的问题。', next: '请再试一次。如果再次发生，请告诉老师：实验或镜像可能有问题。' },
    prepare_failed: { title: '实验没能布置好', text: '实验自己的布置脚本在机器里执行失败。这不是你的问题。', next: '请把下面的日志给老师看：这个实验需要修复。你也可以再试一次。' },
    prepare_timeout: { title: '布置用时过长', text: '实验自己的布置脚本没有在规定时间内完成。这不是你的问题。', next: '请再试一次。如果再次发生，请把下面的日志给老师看。' },
    vm_stopped: { title: '机器被关机了', text: '机器自己停止了，例如执行了 “poweroff”。停止的机器不会再次启动。', next: '重新开始会得到一台全新的机器。在实验里重启 Linux 请用 “reboot”。' },
    vm_lost: { title: '机器丢失了', text: '运行机器的主机把它弄丢了，里面的内容已经没有了。这不是你的问题。', next: '重新开始会得到一台全新的机器。' },
  },
};
