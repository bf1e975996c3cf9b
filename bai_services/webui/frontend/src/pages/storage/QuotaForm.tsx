import { useState } from 'react';
import { App, Button, Flex, InputNumber, Popconfirm, Popover } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSetQuota, type QuotaScope } from '../../data/folders/storage';

const GIB = 2 ** 30;
const UNLIMITED = -1;

/** Set the limit of a user or project, or return to the limit of the policy. */
export function QuotaForm({ scope }: { scope: QuotaScope }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [isOpen, setIsOpen] = useState(false);
  const save = useSetQuota(scope);
  const [size, setSize] = useState<number | null>(
    scope.limit_bytes === null ? null : scope.limit_bytes / GIB
  );
  const name = scope.owner ?? scope.project ?? scope.scope;
  const set = (limit: number | null) =>
    save.mutate(limit, {
      onSuccess: () => setIsOpen(false),
      onError: error => void message.error(error.message)
    });
  return (
    <Flex gap="small">
      <Popover
        trigger="click"
        open={isOpen}
        onOpenChange={setIsOpen}
        title={t('quota-scopes.limit-of', { name })}
        content={
          <Flex gap="small">
            <InputNumber<number>
              value={size}
              min={0}
              suffix="GiB"
              aria-label={t('quota-scopes.size')}
              placeholder={t('quota-scopes.no-limit')}
              onChange={setSize}
              style={{ width: 160 }}
            />
            <Button
              type="primary"
              loading={save.isPending}
              onClick={() => set(size === null ? UNLIMITED : Math.round(size * GIB))}
            >
              {t('entities.save')}
            </Button>
          </Flex>
        }
      >
        <Button size="small" aria-label={t('quota-scopes.edit', { name })}>
          {t('entities.edit')}
        </Button>
      </Popover>
      {scope.override_bytes !== null && (
        <Popconfirm
          title={t('quota-scopes.unset-title', { name })}
          description={t('quota-scopes.unset-effect')}
          okText={t('quota-scopes.unset')}
          cancelText={t('entities.cancel')}
          onConfirm={() => set(null)}
        >
          <Button size="small" aria-label={t('quota-scopes.unset-of', { name })}>
            {t('quota-scopes.unset')}
          </Button>
        </Popconfirm>
      )}
    </Flex>
  );
}
