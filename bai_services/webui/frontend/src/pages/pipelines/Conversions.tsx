import { App, Button, Dropdown, Upload } from 'antd';
import { useTranslation } from 'react-i18next';
import { useConvertPipeline, type PipelineFormat } from '../../data/pipelines/pipelines';
import { onMenuKeyDown } from '../../components/menuKeys';

const EXTENSIONS: Record<PipelineFormat, string> = {
  bai: '.yaml',
  elyra: '.pipeline',
  fasttrack: '.fasttrack.yaml'
};
const FORMATS: readonly PipelineFormat[] = ['bai', 'elyra', 'fasttrack'];
// The server has the same limit.
const MAX_BYTES = 2 ** 20;

interface ConversionsProps {
  text: string;
  /** Name of the exported file. */
  name: string;
  /** Replace the text; undefined: the text cannot be changed. */
  onImport: ((text: string) => void) | undefined;
}

/** Import a file of this or another format into the editor, and export the text. */
export function Conversions({ text, name, onImport }: ConversionsProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const convert = useConvertPipeline();
  const onError = (error: Error) => void message.error(error.message);
  const load = async (file: File) => {
    if (file.size > MAX_BYTES) {
      void message.error(t('pipelines.import-too-large'));
      return;
    }
    const content = await file.text();
    convert.mutate(
      { text: content, name: file.name.replace(/\.[^.]*$/, '') || 'pipeline', target: 'bai' },
      { onSuccess: ({ text: found }) => onImport?.(found), onError }
    );
  };
  const save = (target: PipelineFormat) =>
    convert.mutate(
      { text, name: name || 'pipeline', target },
      {
        onSuccess: ({ text: found }) =>
          download(`${name || 'pipeline'}${EXTENSIONS[target]}`, found),
        onError
      }
    );
  return (
    <>
      {onImport && (
        <Upload
          accept=".yaml,.yml,.pipeline,.json"
          showUploadList={false}
          beforeUpload={file => {
            void load(file);
            return false;
          }}
        >
          <Button loading={convert.isPending}>{t('pipelines.import')}</Button>
        </Upload>
      )}
      <Dropdown
        autoFocus
        trigger={['click']}
        menu={{
          onKeyDown: onMenuKeyDown,
          items: FORMATS.map(key => ({ key, label: t(`pipelines.format-${key}`) })),
          onClick: ({ key }) => save(key as PipelineFormat)
        }}
      >
        <Button>{t('pipelines.export')}</Button>
      </Dropdown>
    </>
  );
}

function download(name: string, text: string) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
