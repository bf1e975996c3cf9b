import { useState } from 'react';
import { Button } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import type { BulkActionsProps } from '../../components/entities/entity';
import { meQuery } from '../../data/accounts/me';
import { PurgeUsers } from './PurgeUsers';

/** Button for superadmins that removes the selected users permanently. */
export function PurgeSelected({ selected, onDone }: BulkActionsProps) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const [isOpen, setIsOpen] = useState(false);
  if (me?.role !== 'superadmin') {
    return null;
  }
  const close = (left: readonly string[]) => {
    setIsOpen(false);
    onDone([...left]);
  };
  return (
    <>
      <Button size="small" danger onClick={() => setIsOpen(true)}>
        {t('users.purge')}
      </Button>
      {isOpen && <PurgeUsers names={selected} onClose={close} />}
    </>
  );
}
