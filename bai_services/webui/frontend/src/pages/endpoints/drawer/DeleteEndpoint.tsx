import { useState } from 'react';
import { Alert, Input, Modal } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { tokenCountQuery, useDeleteEndpoint, type Endpoint } from '../../../data/serving/endpoints';
import { urlOf } from '../endpoints';

interface DeleteEndpointProps {
  endpoint: Endpoint;
  onClose: () => void;
  onDeleted: () => void;
}

/** Delete an endpoint, after the user has read what will be lost and typed its name. */
export function DeleteEndpoint({ endpoint, onClose, onDeleted }: DeleteEndpointProps) {
  const { t } = useTranslation();
  const [typed, setTyped] = useState('');
  const remove = useDeleteEndpoint(endpoint.id);
  const { data: tokens } = useQuery(tokenCountQuery(endpoint.id));
  const { name, ready_replicas: ready, starting_replicas: starting } = endpoint;
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('entities.delete-title', { name })}
      okText={t('entities.delete')}
      cancelText={t('entities.cancel')}
      okButtonProps={{ danger: true, disabled: typed !== name }}
      onOk={() => remove.mutate(undefined, { onSuccess: onDeleted })}
      confirmLoading={remove.isPending}
    >
      <ul style={{ paddingInlineStart: 20, overflowWrap: 'anywhere' }}>
        <li>{t('endpoints.lost-url', { url: urlOf(endpoint) })}</li>
        <li>{t('endpoints.lost-replicas', { count: ready + starting })}</li>
        <li>{t('endpoints.lost-tokens', { count: tokens ?? 0 })}</li>
        <li>{t('endpoints.lost-revisions')}</li>
      </ul>
      <p>{t('endpoints.kept')}</p>
      {!endpoint.is_paused && <p>{t('endpoints.pause-first')}</p>}
      {remove.error && (
        <Alert type="error" showIcon title={remove.error.message} style={{ marginBottom: 12 }} />
      )}
      <Input
        autoFocus
        autoComplete="off"
        value={typed}
        onChange={event => setTyped(event.target.value)}
        aria-label={t('data.type-name', { name })}
        placeholder={name}
      />
    </Modal>
  );
}
