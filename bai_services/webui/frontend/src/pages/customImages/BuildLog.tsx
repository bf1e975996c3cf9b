import { useState } from 'react';
import { Button, Modal, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { buildLogQuery } from '../../data/cluster/customImages';
import type { Item } from '../../data/entities';

/** Button that shows the output of the build of a custom image. */
export function BuildLog({ item }: { item: Item }) {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <Button size="small" onClick={() => setIsOpen(true)}>
        {t('custom-images.output')}
      </Button>
      {isOpen && (
        <Modal
          open
          width={800}
          footer={null}
          title={t('custom-images.output-of', { name: String(item['name']) })}
          onCancel={() => setIsOpen(false)}
        >
          <Output id={String(item['id'])} />
        </Modal>
      )}
    </>
  );
}

function Output({ id }: { id: string }) {
  const { t } = useTranslation();
  const { data, error } = useQuery(buildLogQuery(id));
  if (error) {
    return <ErrorNotice error={error} />;
  }
  return data ? (
    <pre
      tabIndex={0}
      aria-label={t('custom-images.output')}
      style={{ maxHeight: '60vh', overflow: 'auto', fontSize: 12 }}
    >
      {data}
    </pre>
  ) : (
    <Typography.Text type="secondary">{t('custom-images.no-output')}</Typography.Text>
  );
}
