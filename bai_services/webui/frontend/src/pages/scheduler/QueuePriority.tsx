import { useState } from 'react';
import { App, Button, Flex, InputNumber } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSetPriorities } from '../../data/sessions/sessions';

export const MAX_PRIORITY = 100;

interface QueuePriorityProps {
  /** Ids of the selected sessions. */
  selected: readonly string[];
  /** Called with the sessions that remain selected, because their priority could not be set. */
  onDone: (failed: string[]) => void;
}

/** Sets the priority of all selected pending sessions. */
export function QueuePriority({ selected, onDone }: QueuePriorityProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [priority, setPriority] = useState<number | null>(null);
  const change = useSetPriorities();
  const run = async () => {
    if (priority === null) {
      return;
    }
    const failures = await change.mutateAsync({ ids: selected, priority });
    failures.slice(0, 1).forEach(({ error }) => void message.error(error.message));
    onDone(failures.map(({ item }) => item));
  };
  return (
    <Flex wrap gap="small" align="center" role="group" aria-label={t('entities.selection')}>
      <span role="status">{t('entities.selected', { count: selected.length })}</span>
      <InputNumber
        size="small"
        min={0}
        max={MAX_PRIORITY}
        precision={0}
        value={priority}
        onChange={setPriority}
        changeOnWheel={false}
        aria-label={t('scheduler.new-priority')}
        placeholder={t('scheduler.priority')}
      />
      <Button
        size="small"
        disabled={priority === null}
        loading={change.isPending}
        onClick={() => void run()}
      >
        {t('scheduler.set-priority')}
      </Button>
    </Flex>
  );
}
